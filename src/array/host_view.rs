//! Host views: the elements of an array in host or shared USM as a Rust slice, without a copy.

use super::{Array, Element};
use crate::error::{Error, Result, spelled};
use crate::memory::ViewToken;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

impl Array {
    /// The elements as a slice, in C order, without a copy: for host and shared USM. Waits for earlier writes.
    ///
    /// While the view lives, commands may read the memory. A command that would write to it, on any queue and thread
    /// and through any array that shares the memory, is an [`Error::HostView`], and so is an export to another library.
    ///
    /// ```
    /// use usmq::{Array, Error, UsmKind};
    ///
    /// let x = Array::builder::<f32>(3).kind(UsmKind::Shared).fill(1.0).build()?;
    /// let view = x.host_view::<f32>()?;
    /// assert_eq!(view.iter().sum::<f32>(), 3.0);
    /// assert!(matches!(x.fill(2f32), Err(Error::HostView { .. })));
    /// drop(view);
    /// x.fill(2f32)?;
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Type`] if `T` is not the element type; [`Error::HostView`] beside a mutable view; [`Error::Value`] for
    /// device or system memory, a strided view, memory that another library has or had, or bits that are not a valid
    /// `T`; [`Error::Sycl`] with the error that the work reported.
    pub fn host_view<T: Element>(&self) -> Result<HostView<T>> {
        self.view_on_host(false)
    }

    /// As [`Array::host_view`], for a slice that the host may write to. Waits for all earlier work on the memory. While
    /// the view lives, every command that would use the memory, and every other view, is an [`Error::HostView`].
    ///
    /// ```
    /// use usmq::{Array, UsmKind};
    ///
    /// let x = Array::builder::<i32>(3).kind(UsmKind::Host).build()?;
    /// x.host_view_mut::<i32>()?.copy_from_slice(&[3, 1, 2]);
    /// x.host_view_mut::<i32>()?.sort();
    /// assert_eq!(x.to_vec::<i32>()?, [1, 2, 3]);
    /// # Ok::<(), usmq::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Array::host_view`]; [`Error::HostView`] beside any view, [`Error::Value`] also for a read-only array.
    pub fn host_view_mut<T: Element>(&self) -> Result<HostViewMut<T>> {
        self.check_writable()?;
        self.view_on_host(true).map(HostViewMut)
    }

    fn view_on_host<T: Element>(&self, is_mutable: bool) -> Result<HostView<T>> {
        self.check_element::<T>()?;
        let copy = spelled("to_numpy() copies", "to_vec() copies");
        let refuse = |why: &str| Err(Error::value(format!("{self} has no host view: {why}; {copy}")));
        if !self.usm_kind().is_some_and(crate::device::UsmKind::is_host_accessible) {
            return refuse("only host and shared USM has one");
        }
        if !self.is_contiguous() {
            return refuse("its elements are not contiguous");
        }
        if !self.address().is_multiple_of(align_of::<T>()) {
            return refuse("its address is not aligned");
        }
        let _direct = self.outside_capture("a host view")?;
        let Some(token) = self.allocation().begin_view(is_mutable, self)? else {
            return refuse("another library has or had the memory, so usmq does not know all writes");
        };
        let view = HostView { array: self.clone(), _token: token, element: PhantomData };
        // From here on, no new command conflicts with the view.
        self.allocation().wait_for_view(is_mutable)?;
        if !T::is_valid(view.bytes()) {
            return Err(self.invalid());
        }
        Ok(view)
    }
}

/// The elements of an array as a slice; see [`Array::host_view`].
///
/// ```
/// use usmq::{Array, UsmKind};
///
/// let x = Array::builder::<i32>(3).kind(UsmKind::Shared).fill(2).build()?;
/// let view = x.host_view::<i32>()?;
/// assert_eq!(view.iter().sum::<i32>(), 6);
/// assert!(x.fill(0i32).is_err(), "the view is live");
/// drop(view);
/// x.fill(0i32)?;
/// # Ok::<(), usmq::Error>(())
/// ```
#[must_use = "the view keeps commands from writing while it lives"]
pub struct HostView<T: Element> {
    array: Array,
    _token: ViewToken,
    element: PhantomData<T>,
}

/// The elements of an array as a mutable slice; see [`Array::host_view_mut`].
///
/// ```
/// use usmq::{Array, UsmKind};
///
/// let x = Array::builder::<i32>(3).kind(UsmKind::Shared).zeroed().build()?;
/// x.host_view_mut::<i32>()?.copy_from_slice(&[1, 2, 3]);
/// assert_eq!(x.to_vec::<i32>()?, [1, 2, 3]);
/// # Ok::<(), usmq::Error>(())
/// ```
#[must_use = "the view keeps commands from using the memory while it lives"]
pub struct HostViewMut<T: Element>(HostView<T>);

impl<T: Element> HostView<T> {
    /// The array of the view.
    #[must_use]
    pub fn array(&self) -> &Array {
        &self.array
    }

    fn pointer(&self) -> *mut T {
        if self.array.size() == 0 {
            return std::ptr::dangling_mut();
        }
        self.array.address() as *mut T
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: as in `deref`; every byte is a u8.
        unsafe { std::slice::from_raw_parts(self.pointer().cast(), self.array.nbytes()) }
    }
}

impl<T: Element> Deref for HostView<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the host can read the memory, which the array keeps alive, and the view has checked layout, alignment
        // and validity. The token keeps usmq from writing, and no other library knows the memory.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.array.size()) }
    }
}

impl<T: Element> HostViewMut<T> {
    /// The array of the view.
    #[must_use]
    pub fn array(&self) -> &Array {
        self.0.array()
    }
}

impl<T: Element> Deref for HostViewMut<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Element> DerefMut for HostViewMut<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `HostView`; its token excludes every other use of the memory.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer(), self.0.array.size()) }
    }
}

impl<T: Element> AsRef<[T]> for HostView<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Element> AsRef<[T]> for HostViewMut<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Element> AsMut<[T]> for HostViewMut<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: Element> fmt::Debug for HostView<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostView({})", self.array)
    }
}

impl<T: Element> fmt::Debug for HostViewMut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostViewMut({})", self.0.array)
    }
}
