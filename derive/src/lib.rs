//! The derive macro of the crate `usmq`, which re-exports and documents it.

mod kernel_struct;

/// Makes a structure an argument of kernels, by value; see `usmq::KernelStruct`.
#[proc_macro_derive(KernelStruct)]
pub fn kernel_struct(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    kernel_struct::expand(&input).unwrap_or_else(|error| error.into_compile_error()).into()
}
