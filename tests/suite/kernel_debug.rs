//! Debug builds of kernels: accesses outside of arrays are errors.

use usmq::{Arg, Array, Error, Event, Kernel, KernelOptions, Result};

const SOURCE: &str = "#include <usmq/kernel.h>
    USMQ_KERNEL(1) void copy(const float *x, float *y, size_t shift) {
      auto i = global_id(0);
      const float *from = x + shift;
      y[i] = from[i];
    }";

fn debug() -> Result<Kernel> {
    Kernel::from_sycl_with(SOURCE, "copy", KernelOptions { debug: true, ..KernelOptions::default() })
}

fn start(kernel: &Kernel, items: usize, args: &[Arg]) -> Result<Event> {
    // SAFETY: a debug build accesses its arrays only.
    unsafe { kernel.launch([items], args) }
}

#[test]
fn an_access_outside_of_an_array_is_a_launch_error() -> Result<()> {
    let kernel = debug()?;
    assert!(kernel.is_debug() && !Kernel::from_sycl(SOURCE, "copy")?.is_debug());
    let (x, y) = (Array::from_slice(&[1f32, 2.0, 3.0])?, Array::zeros::<f32>([3])?);
    assert!(start(&kernel, 3, &[(&x).into(), (&y).into(), 0u64.into()])?.done()?);
    assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    let failed = start(&kernel, 3, &[(&x).into(), (&y).into(), 2u64.into()]);
    let Err(Error::Launch { message: text, .. }) = failed else { panic!("{failed:?}") };
    assert!(
        text.contains("\"copy\", argument 0 (x): work-item ") && text.contains("the first of 2 "),
        "{text}"
    );
    Ok(())
}

#[test]
fn launches_of_several_threads_have_reports_of_their_own() -> Result<()> {
    let kernel = debug()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|shift| {
                let kernel = &kernel;
                scope.spawn(move || -> Result<()> {
                    let (x, y) = (Array::zeros::<f32>([64])?, Array::zeros::<f32>([64])?);
                    for _ in 0..20 {
                        let done = start(kernel, 64, &[(&x).into(), (&y).into(), shift.into()]);
                        match (shift, done) {
                            (0, Ok(_)) => {}
                            (1, Err(Error::Launch { message: text, .. })) => {
                                assert!(text.contains("index 64,"), "{text}")
                            }
                            (2.., Err(Error::Launch { message: text, .. })) => {
                                assert!(text.contains(&format!("the first of {shift} ")), "{text}");
                            }
                            (_, other) => panic!("shift {shift}: {other:?}"),
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

#[test]
fn debug_is_refused_for_other_languages() {
    let options = KernelOptions { debug: true, ..KernelOptions::default() };
    let refused = Kernel::from_opencl("kernel void f(global int *x) {}", "f", options.clone());
    let expected = "debug is for kernels from SYCL C++";
    assert!(matches!(refused, Err(Error::Value { message, .. }) if message.contains(expected)));
    // SAFETY: no driver gets the module.
    assert!(matches!(unsafe { Kernel::from_spirv(&[], "f", options) }, Err(Error::Value { .. })));
}
