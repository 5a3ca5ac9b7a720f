//! `#[derive(KernelStruct)]`: the checks of a structure, and its implementations. Pure.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Index, Member, Result};

const NAME: &str = "#[derive(KernelStruct)]";

/// The implementations of `usmq::KernelField` and `From` for `usmq::Arg`, or the error at the part that is refused.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let refuse = |place: &dyn quote::ToTokens, why: String| {
        Err(Error::new_spanned(place, format!("{NAME}: `{}` {why}", input.ident)))
    };
    let Data::Struct(data) = &input.data else {
        let kind = if matches!(input.data, Data::Enum(_)) { "an enum" } else { "a union" };
        return refuse(&input.ident, format!("is {kind}; only a struct can be an argument of a kernel"));
    };
    if !input.generics.params.is_empty() {
        let why = "is generic, but a kernel is compiled for one layout; write one struct for each type";
        return refuse(&input.generics, why.to_owned());
    }
    if data.fields.is_empty() {
        return refuse(&input.ident, "has no fields; a C++ structure has at least one byte".to_owned());
    }
    let layout = representation(input)?;
    if !layout.is_c {
        return refuse(&input.ident, "does not have the layout of C; add #[repr(C)]".to_owned());
    }
    if let Some(packed) = layout.packed {
        return refuse(&packed, "is packed, but a kernel reads aligned fields; remove `packed`".to_owned());
    }

    let name = &input.ident;
    let fields = data.fields.iter().enumerate().map(|(position, field)| {
        let member = field.ident.clone().map_or(Member::Unnamed(Index::from(position)), Member::Named);
        let kind = &field.ty;
        // The span is that of the type, so that the compiler's errors about a field's type point at the field.
        quote_spanned! {kind.span()=> {
            let start = ::core::mem::offset_of!(#name, #member);
            let end = start + ::core::mem::size_of::<#kind>();
            <#kind as ::usmq::KernelField>::write_to(&self.#member, &mut bytes[start..end]);
        }}
    });
    Ok(quote! {
        impl ::usmq::KernelField for #name {
            fn write_to(&self, bytes: &mut [u8]) {
                #(#fields)*
            }
        }

        impl ::core::convert::From<#name> for ::usmq::Arg<'_> {
            fn from(value: #name) -> Self {
                // Padding stays zero: it is never read from the value.
                let mut bytes = [0u8; ::core::mem::size_of::<#name>()];
                ::usmq::KernelField::write_to(&value, &mut bytes);
                Self::bytes(&bytes)
            }
        }
    })
}

/// The parts of `#[repr(...)]` that matter.
struct Representation {
    is_c: bool,
    packed: Option<syn::Path>,
}

fn representation(input: &DeriveInput) -> Result<Representation> {
    let mut found = Representation { is_c: false, packed: None };
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|part| {
            if part.input.peek(syn::token::Paren) {
                // The number in `align(16)` or `packed(2)`.
                let number;
                syn::parenthesized!(number in part.input);
                number.parse::<syn::LitInt>()?;
            }
            found.is_c |= part.path.is_ident("C");
            if part.path.is_ident("packed") {
                found.packed = Some(part.path);
            }
            Ok(())
        })?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    fn expanded(source: &str) -> Result<String, String> {
        let input = syn::parse_str(source).unwrap();
        super::expand(&input).map(|tokens| tokens.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn named_and_unnamed_fields_are_written_at_their_offsets() {
        let code = expanded("#[repr(C)] struct Line { slope: f32, offset: [f64; 2] }").unwrap();
        for part in ["offset_of ! (Line , slope)", "size_of :: < [f64 ; 2] >", "for :: usmq :: Arg"] {
            assert!(code.contains(part), "{part}: {code}");
        }
        let code = expanded("#[repr(C, align(16))] struct Pair(f32, u8);").unwrap();
        assert!(code.contains("offset_of ! (Pair , 1)"), "{code}");
        assert!(expanded("#[repr(C)] #[repr(align(8))] struct Last { value: f32 }").is_ok());
    }

    #[test]
    fn other_types_are_refused_with_the_reason() {
        for (source, text) in [
            ("#[repr(C)] enum Kind { A, B }", "`Kind` is an enum; only a struct"),
            ("#[repr(C)] union Bits { a: f32, b: u32 }", "`Bits` is a union; only a struct"),
            (
                "#[repr(C)] struct Pair<T> { a: T }",
                "`Pair` is generic, but a kernel is compiled for one layout",
            ),
            ("#[repr(C)] struct Text<'a> { a: &'a u8 }", "`Text` is generic"),
            ("#[repr(C)] struct Rows<const N: usize> { a: [f32; N] }", "`Rows` is generic"),
            ("#[repr(C)] struct Empty;", "`Empty` has no fields"),
            ("#[repr(C)] struct Empty {}", "`Empty` has no fields"),
            ("struct Line { slope: f32 }", "`Line` does not have the layout of C; add #[repr(C)]"),
            ("#[repr(transparent)] struct Line { slope: f32 }", "add #[repr(C)]"),
            ("#[repr(C, packed)] struct Line { slope: f32 }", "`Line` is packed"),
            ("#[repr(C)] #[repr(packed(2))] struct Line { slope: f32 }", "`Line` is packed"),
        ] {
            let error = expanded(source).expect_err(source);
            assert!(error.starts_with("#[derive(KernelStruct)]: `") && error.contains(text), "{error}");
        }
    }
}
