//! Captures: commands that are recorded once and run again with one call.

mod explain;
mod graph;
mod inputs;
mod partition;
mod replay;
mod svg;

pub use graph::Graph;

use crate::array::Array;
use crate::device::recording::enter;
use crate::error::{Error, Result};
use crate::manager::current_queue;
use crate::memory::{Recording, is_capturing};
use inputs::Input;
use std::sync::Arc;

/// Records the commands that `f` submits on this thread, on any queue, and does not run them. [`Graph::replay`] runs
/// them, as often as needed, in the order that their arrays require.
///
/// Recorded are launches of kernels, copies between arrays, fills, casts and collocations. Arrays that `f` creates belong
/// to the graph; their elements are undefined before the first replay. Arrays from outside live as long as the graph.
/// Host values that `f` copies to an array are those of the capture in each replay. Other threads, and their work on
/// the same arrays and queues, are not affected.
///
/// A `Drop` that runs during `f` is part of it: its commands are recorded, and its waits can be errors.
///
/// The promise of an unsafe launch inside `f` extends to all replays, with all values that the arrays may have then.
///
/// ```
/// use usmq::{Array, Elementwise, capture};
///
/// // SAFETY: the expression uses its own element only.
/// let axpy = unsafe { Elementwise::new("float a, const float *x, float *y", "y[i] += a * x[i]") }?;
/// let (x, y) = (Array::full(3, 1f32)?, Array::zeros::<f32>(3)?);
/// let graph = capture(|| axpy.launch((2f32, &x, &y)))?;
/// for _ in 0..10 {
///     graph.replay()?;
/// }
/// assert_eq!(y.to_vec::<f32>()?, [20.0; 3]);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// That of `f`, after which nothing of the capture is kept; [`Error::Capture`] inside another capture.
pub fn capture<T>(f: impl FnOnce() -> Result<T>) -> Result<Graph> {
    capture_with(&[], f)
}

/// As [`capture`], with named arrays whose memory each replay may exchange; see [`Graph::replay_with`].
///
/// ```
/// use usmq::{Array, Elementwise, capture_with};
///
/// // SAFETY: the expression uses its own element only.
/// let double = unsafe { Elementwise::new("const float *x, float *y", "y[i] = 2 * x[i]") }?;
/// let (x, y) = (Array::full(3, 1f32)?, Array::zeros::<f32>(3)?);
/// let graph = capture_with(&[("x", &x)], || double.launch((&x, &y)))?;
/// graph.replay_with(&[("x", &Array::full(3, 5f32)?)])?;
/// assert_eq!(y.to_vec::<f32>()?, [10.0; 3]);
/// # Ok::<(), usmq::Error>(())
/// ```
///
/// # Errors
/// As [`capture`]; [`Error::Value`] if a name occurs twice or if two inputs share memory; [`Error::Capture`] if `f` uses
/// memory of an input outside of its elements.
pub fn capture_with<T>(inputs: &[(&str, &Array)], f: impl FnOnce() -> Result<T>) -> Result<Graph> {
    let capture = Capture::begin(inputs)?;
    {
        let _entered = enter(capture.0.recording.clone());
        f()?;
    }
    capture.finish()
}

/// An open capture, which several threads may enter.
#[derive(Clone)]
pub(crate) struct Capture(Arc<Open>);

struct Open {
    recording: Arc<Recording>,
    inputs: Vec<Input>,
}

impl Capture {
    pub(crate) fn begin(inputs: &[(&str, &Array)]) -> Result<Self> {
        if is_capturing() {
            return Err(Error::Capture {
                call: "a capture inside a capture".to_owned(),
                found: "this thread is already recording".to_owned(),
                fix: "end the outer capture first, or replay the inner graph beside it".to_owned(),
            });
        }
        let inputs = inputs::begin(inputs)?;
        Ok(Self(Arc::new(Open { recording: Recording::new(), inputs })))
    }

    /// The capture as a recorder, for [`enter`].
    #[cfg(feature = "python")]
    pub(crate) fn recorder(&self) -> Arc<Recording> {
        self.0.recording.clone()
    }

    /// Ends the capture. Later commands of threads that are still inside are errors.
    pub(crate) fn finish(&self) -> Result<Graph> {
        let (nodes, used) = self.0.recording.close();
        let queue = nodes.last().map_or_else(current_queue, |node| Ok(node.queue.clone()))?;
        Graph::new(nodes, used, &self.0.inputs, queue)
    }

    /// Ends the capture without a graph.
    #[cfg(feature = "python")]
    pub(crate) fn discard(&self) {
        drop(self.0.recording.close());
    }
}
