//! The fields of errors: a program reads them where a person reads the text.

use crate::common::{PROFILING, default_queue, states};
use usmq::interop::{
    arrow::{Column, Table},
    cuda,
};
use usmq::{
    Array, Error, In, Kernel, KernelOptions, Out, Queue, Result, Task, concatenate, follow, with_queue,
};

const SOURCE: &str = r#"
#include <usmq/kernel.h>
USMQ_KERNEL(1) void scale(float a, const float *x, float *y) { y[global_id(0)] = a * x[global_id(0)]; }
"#;

#[test]
fn a_placement_error_lists_the_queues_and_the_position_of_an_unusable_array() -> Result<()> {
    let home = default_queue()?;
    let profiling = Queue::new(home.device(), None, PROFILING)?;
    let (x, y) = (states(2, &home)?, states(2, &profiling)?);
    let Err(Error::Placement { queues, position, message, .. }) = follow(&[&x, &y]) else { panic!() };
    assert_eq!((queues, position), (vec![home.to_string(), profiling.to_string()], None));
    assert!(message.contains("different queues"), "{message}");
    let task = Task::new("add").arg(x.clone()).arg(y.clone());
    let Err(Error::Placement { queues, .. }) = task.run(|_| Ok(())) else { panic!() };
    assert_eq!(queues, [home.to_string(), profiling.to_string()]);
    let Some(other) = crate::common::other_root(&home)? else { return Ok(()) };
    let other = Queue::get(other)?;
    let Err(Error::Placement { queues, position, .. }) = x.on_queue(&other) else { panic!() };
    assert_eq!((queues, position), (vec![home.to_string()], Some(0)));
    let kernel = Kernel::from_sycl(SOURCE, "scale")?;
    let launch = usmq::Launch { global: &[2], queue: Some(&home), ..Default::default() };
    let far = Array::builder::<f32>(2).queue(&other).build()?;
    let near = Array::builder::<f32>(2).queue(&home).build()?;
    // SAFETY: this launch does not run.
    let refused = unsafe { kernel.launch_with(launch, (1f32, &near, &far)) };
    let Err(Error::Placement { position, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(position, Some(1));
    Ok(())
}

#[test]
fn a_launch_error_names_the_kernel_and_the_argument() -> Result<()> {
    fn parts<T: std::fmt::Debug>(result: Result<T>) -> (String, Option<usize>) {
        match result {
            Err(Error::Launch { kernel, argument, message, .. }) => {
                assert!(message.contains(&format!("kernel {kernel:?}")), "{message}");
                (kernel, argument)
            }
            other => panic!("{other:?}"),
        }
    }
    let scale = Kernel::from_sycl(SOURCE, "scale")?;
    let (x, y) = (Array::zeros::<f32>(2)?, Array::zeros::<f64>(2)?);
    let name = || "scale".to_owned();
    // SAFETY: this launch does not run.
    assert_eq!(parts(unsafe { scale.launch(2, (1f32, &x, &y)) }), (name(), Some(2)));
    // SAFETY: as above.
    assert_eq!(parts(unsafe { scale.launch(2, (1f32, &x)) }), (name(), None));
    // SAFETY: as above.
    assert_eq!(parts(unsafe { scale.launch((2, 1), (1f32, &x, &x)) }), (name(), None));
    // SAFETY: work-item i reads x[i] and writes y[i].
    let wrong = unsafe { scale.typed::<(f32, In<f64>, Out<f32>)>() };
    assert_eq!(parts(wrong), (name(), Some(1)));
    // SAFETY: as above.
    let typed = unsafe { scale.typed::<(f32, In<f32>, Out<f32>)>() }?;
    assert_eq!(parts(typed.launch(2, (1.0, &x, &x))), (name(), Some(2)));
    // SAFETY: work-item i touches element i of x and y only.
    let square = unsafe { usmq::Elementwise::new("const float *x, float *y", "y[i] = x[i] * x[i]") }?;
    assert_eq!(parts(square.launch((&x, &y))).1, Some(1));
    let debug = KernelOptions { debug: true, ..KernelOptions::default() };
    let checked = Kernel::from_sycl_with(SOURCE, "scale", debug)?;
    let z = Array::zeros::<f32>(3)?;
    // SAFETY: a debug build changes no memory outside of its arrays.
    assert_eq!(parts(unsafe { checked.launch(3, (1f32, &x, &z)) }), (name(), Some(1)));
    Ok(())
}

#[test]
fn an_index_error_has_the_index_the_extent_and_the_axis() -> Result<()> {
    fn parts<T: std::fmt::Debug>(result: Result<T>) -> (Option<isize>, Option<usize>, Option<usize>) {
        match result {
            Err(Error::Index { index, extent, axis, .. }) => (index, extent, axis),
            other => panic!("{other:?}"),
        }
    }
    let x = Array::zeros::<i32>((2, 3))?;
    assert_eq!(parts(x.index((0, -4))), (Some(-4), Some(3), Some(1)));
    assert_eq!(parts(x.index((0, 0, 0))), (None, None, None));
    assert_eq!(parts(x.squeeze_axes([2])), (Some(2), Some(2), None));
    assert_eq!(parts(concatenate(&[&x, &x], -3)), (Some(-3), Some(2), None));
    let table = Table::new(vec![Column::from_array("a", &Array::zeros::<i32>(2)?)?])?;
    assert_eq!(parts(table.slice(1, 2)), (Some(3), Some(2), None));
    assert_eq!(parts(table.slice(1, usize::MAX)), (None, Some(2), None));
    assert_eq!(parts(table.column("b")), (None, None, None));
    Ok(())
}

#[test]
fn a_type_error_has_both_types_where_it_compares_two() -> Result<()> {
    fn parts<T: std::fmt::Debug>(result: Result<T>) -> (Option<String>, Option<String>) {
        match result {
            Err(Error::Type { expected, found, .. }) => (expected, found),
            other => panic!("{other:?}"),
        }
    }
    let both = |expected: &str, found: &str| (Some(expected.to_owned()), Some(found.to_owned()));
    let (x, y) = (Array::zeros::<f32>(2)?, Array::zeros::<i64>(2)?);
    assert_eq!(parts(x.to_vec::<i32>()), both("int32", "float32"));
    assert_eq!(parts(concatenate(&[&x, &y], 0)), both("float32", "int64"));
    assert_eq!(parts("f3".parse::<usmq::DType>()), (None, None));
    Ok(())
}

#[test]
fn functions_of_users_make_errors_of_three_kinds() {
    for (error, is_right) in [
        (Error::value("no"), (|error| matches!(error, Error::Value { .. })) as fn(&Error) -> bool),
        (Error::interop("no"), |error| matches!(error, Error::Interop { .. })),
        (Error::wrong_type("no"), |error| matches!(error, Error::Type { .. })),
    ] {
        assert!(is_right(&error), "{error:?}");
        let passed = with_queue("cpu", || Err::<(), _>(error)).expect_err("an error");
        assert!(is_right(&passed) && passed.to_string() == "no", "{passed:?}");
    }
}

#[test]
fn a_missing_library_is_named_in_the_message() {
    match cuda::device_count() {
        Err(Error::RuntimeNotFound { message, .. }) => assert!(message.contains("cuda"), "{message}"),
        found => println!("{found:?}: this machine has CUDA devices, so none is missing"),
    }
}
