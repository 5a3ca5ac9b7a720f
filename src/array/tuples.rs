//! The lengths of tuples: a macro for implementations of a trait for tuples of several lengths.

/// Calls `$each!` with a list of names for each length, from the list in parentheses to the whole one:
/// `tuples!(each: (a) b c)` calls `each!(a)`, `each!(a b)` and `each!(a b c)`.
macro_rules! tuples {
    ($each:ident: ($($name:ident)*)) => { $each!($($name)*); };
    ($each:ident: ($($name:ident)*) $next:ident $($rest:ident)*) => {
        $each!($($name)*);
        $crate::array::tuples!($each: ($($name)* $next) $($rest)*);
    };
}

pub(crate) use tuples;
