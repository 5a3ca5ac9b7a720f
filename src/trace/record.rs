//! A trace record: operation, reason and clock. The device layer implements the traits of the objects that a
//! record names.

use crate::runtime::Interned;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The kind of a recorded operation.
///
/// ```
/// use usmq::{Array, profile::{Kind, Session}};
///
/// let session = Session::start();
/// Array::zeros::<f32>(2)?.to_vec::<f32>()?;
/// let profile = session.finish()?;
/// assert!(profile.events().iter().any(|event| event.kind == Kind::Fill));
/// assert!(Kind::Fill.is_command() && !Kind::Wait.is_command());
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A kernel of the user.
    Kernel,
    /// A copy, by the runtime or, if layout or type change, by a kernel of usmq.
    Copy,
    /// A fill.
    Fill,
    /// A barrier: a command that only waits for others.
    Barrier,
    /// The host waited.
    Wait,
    /// The host built a kernel.
    Build,
    /// Memory was taken from a pool.
    Allocate,
    /// Memory was given back to a pool. It is reused when its last use is complete.
    Free,
}

/// The reason of an operation.
///
/// ```
/// use usmq::{Array, profile::{Reason, Session}};
///
/// let session = Session::start();
/// Array::zeros::<f32>(2)?.to_vec::<f32>()?;
/// let profile = session.finish()?;
/// assert!(profile.events().iter().any(|event| event.reason == Reason::HostRead));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// The program requested this operation.
    Explicit,
    /// The host read an array.
    HostRead,
    /// The host wrote to an array.
    HostWrite,
    /// An array was moved to another queue of its context.
    Collocate,
    /// An array was moved to a queue of another context.
    ContextMismatch,
    /// Data of another library became an array.
    Import,
    /// An array was made ready for another library.
    Export,
    /// The operation needed contiguous elements.
    Contiguity,
    /// Another element type or USM kind was requested.
    Conversion,
    /// Order with another library's work on the same memory.
    Order,
    /// A kernel got memory of the host as an argument.
    HostArgument,
    /// To or from the bytes of a pickle.
    Pickle,
    /// To or from memory that another process maps, too.
    SharedMemory,
}

/// The clock of a record's times.
///
/// ```
/// use usmq::{Array, profile::{Clock, Session}};
///
/// let session = Session::start();
/// Array::zeros::<f32>(2)?.to_vec::<f32>()?;
/// let profile = session.finish()?;
/// assert!(profile.clocks().iter().all(|clock| matches!(clock, Clock::Device | Clock::Host)));
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The device's timestamps.
    Device,
    /// The host's clock: from submission, or the end of the dependencies, until the host observed the end.
    Host,
}

/// A source line of the program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Site {
    pub file: Arc<str>,
    pub line: u32,
}

/// A device. Its id identifies it while a handle exists.
pub(crate) trait TracedDevice: Send + Sync {
    fn id(&self) -> usize;
    fn name(&self) -> &str;
    /// The filter string; for a sub-device that of its parent, and the parent's id.
    fn filter_and_parent(&self) -> (&str, Option<usize>);
    /// The driver's handle, if this is a device that only the runtime's trace has named.
    fn foreign_native(&self) -> Option<usize> {
        None
    }
}

/// A queue. Its id identifies it while a handle exists.
pub(crate) trait TracedQueue: fmt::Display + Send + Sync {
    fn id(&self) -> usize;
    fn in_order(&self) -> bool;
    fn device(&self) -> DeviceHandle;
    /// Whether its commands have timestamps of the device.
    fn keeps_timestamps(&self) -> bool;
}

/// A submitted command.
pub(crate) trait Completion: Send + Sync {
    fn queue_handle(&self) -> QueueHandle;
    /// The number of its record; 0 without one.
    fn record(&self) -> &AtomicU64;
    /// Whether it has ended; true if it cannot be queried. Never blocks.
    fn is_over(&self) -> bool;
    /// Whether another library has submitted it.
    fn is_foreign(&self) -> bool {
        false
    }
    /// The device's submit, start and end times of a complete command, if its queue records them.
    fn recorded_timestamps(&self) -> Option<[u64; 3]>;
}

pub(crate) type DeviceHandle = Arc<dyn TracedDevice>;
pub(crate) type QueueHandle = Interned<dyn TracedQueue>;

/// One recorded operation. Times are nanoseconds of the host's steady clock unless `clock` says otherwise.
#[derive(Clone)]
pub(crate) struct Record {
    pub id: u64,
    pub kind: Kind,
    pub reason: Reason,
    pub queue: Option<QueueHandle>,
    /// None for waits and host USM of other libraries.
    pub device: Option<DeviceHandle>,
    pub name: Option<Arc<str>>,
    pub bytes: u64,
    /// For copies of other libraries: the address of the host's memory; 0 if unknown.
    pub host: usize,
    /// Whether it is the rest of the command that it waits for.
    pub continues: bool,
    /// For memory: the name of the USM kind.
    pub usm: Option<&'static str>,
    /// For memory: whether the pool had a free block.
    pub hit: bool,
    pub site: Option<Site>,
    /// The number of the call that this line made on the thread.
    pub call: u32,
    /// A small number for the host thread.
    pub thread: u32,
    /// Begin and return of the host's call.
    pub called: (u64, u64),
    /// The device's submit, start and end times, relative to an unknown base; for host records start and end
    /// are in `called`.
    pub stamps: Option<[u64; 3]>,
    /// When the host observed the end; 0 before.
    pub seen: u64,
    pub waited_for: SmallVec<[u64; 2]>,
}

impl Kind {
    /// `kernel`, `copy`, `fill`, `barrier`, `wait`, `build`, `allocate` or `free`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::Barrier => "barrier",
            Self::Wait => "wait",
            Self::Build => "build",
            Self::Allocate => "allocate",
            Self::Free => "free",
        }
    }

    /// Whether it runs on a device.
    #[must_use]
    pub const fn is_command(self) -> bool {
        matches!(self, Self::Kernel | Self::Copy | Self::Fill | Self::Barrier)
    }
}

impl Reason {
    /// `explicit`, `host read`, `context mismatch` and so on.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::HostRead => "host read",
            Self::HostWrite => "host write",
            Self::Collocate => "collocate",
            Self::ContextMismatch => "context mismatch",
            Self::Import => "import",
            Self::Export => "export",
            Self::Contiguity => "contiguity",
            Self::Conversion => "conversion",
            Self::Order => "order",
            Self::HostArgument => "host argument",
            Self::Pickle => "pickle",
            Self::SharedMemory => "shared memory",
        }
    }
}

impl Clock {
    /// `device` or `host`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
        }
    }
}
