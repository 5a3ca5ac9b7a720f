//! Launches as a user writes them: tuples, sizes, structures, typed kernels; and shapes and indices.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "many launches with one reason")]

use crate::common::{default_queue, two_sub_devices};
use usmq::{
    Arg, Array, DType, Error, In, InOut, Kernel, KernelStruct, Launch, Out, Queue, Result, TypedKernel,
    UsmKind,
};

const SOURCE: &str = r#"
#include <usmq/kernel.h>
USMQ_KERNEL(1) void axpy(float a, const float *x, float *y, size_t n) {
  size_t i = global_id(0);
  if (i < n) y[i] += a * x[i];
}
USMQ_KERNEL(1) void scale(float a, const float *x, float *y) { y[global_id(0)] = a * x[global_id(0)]; }
USMQ_KERNEL(2) void place(int *x) { x[global_linear_id()] = 10 * global_id(0) + global_id(1); }
USMQ_KERNEL(3) void place3(int *x) { x[global_linear_id()] = 100 * global_id(0) + 10 * global_id(1) + global_id(2); }
USMQ_KERNEL(1) void sum16(int *a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l, int m, int n,
                          int o, int p) { *a = b + c + d + e + f + g + h + i + j + k + l + m + n + o + p; }
USMQ_KERNEL(1) void none() {}
struct Inner { signed char tag; double value; };
struct Outer { int first; Inner inner[2]; float weights[3]; unsigned short last; };
USMQ_KERNEL(1) void outer(Outer o, double *y) {
  y[0] = o.first; y[1] = o.inner[0].tag; y[2] = o.inner[0].value; y[3] = o.inner[1].tag; y[4] = o.inner[1].value;
  y[5] = o.weights[0]; y[6] = o.weights[2]; y[7] = o.last; y[8] = sizeof(Outer);
}
"#;

fn kernel(name: &str) -> Result<Kernel> {
    Kernel::from_sycl(SOURCE, name)
}

fn text(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_owned())
}

#[test]
fn arguments_are_a_tuple_or_a_list() -> Result<()> {
    let axpy = kernel("axpy")?;
    let (x, y) = (Array::from_slice(&[1f32, 2.0])?, Array::zeros::<f32>(2)?);
    let list: Vec<Arg> = vec![2f32.into(), Arg::read(&x), (&y).into(), x.size().into()];
    // SAFETY: with 2 work-items axpy touches the 2 elements of x and y only.
    unsafe {
        axpy.launch(2, (2f32, &x, &y, x.size()))?;
        axpy.launch([2], (2f32, x.clone(), y.clone(), 2u64))?;
        axpy.launch([2], &[2f32.into(), (&x).into(), (&y).into(), 2u64.into()])?;
        axpy.launch((2,), &list)?;
        axpy.launch(x.shape(), &list[..])?;
        axpy.launch(vec![2], list)?;
        axpy.launch_with(Launch { global: &[2], ..Launch::default() }, (2f32, &x, Arg::write(&y), 2usize))?;
    }
    assert_eq!(y.to_vec::<f32>()?, [14.0, 28.0]);
    let out = Array::zeros::<i32>(1)?;
    // SAFETY: one work-item writes the one element.
    unsafe { kernel("sum16")?.launch(1, (&out, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)) }?;
    assert_eq!(out.to_vec::<i32>()?, [120]);
    // SAFETY: the kernel does nothing.
    unsafe { kernel("none")?.launch(1, ()) }?.wait()
}

#[test]
fn a_tuple_with_wrong_arguments_is_an_error() -> Result<()> {
    let axpy = kernel("axpy")?;
    let x = Array::from_slice(&[1f32, 2.0])?;
    // SAFETY: none of these launches runs.
    unsafe {
        assert!(text(axpy.launch(2, (2f32, &x))).contains("takes 4 arguments"));
        assert!(text(axpy.launch(2, (2f64, &x, &x, 2usize))).contains("got float64"));
        assert!(text(axpy.launch(2, (2f32, &x, &x, 2isize))).contains("got int64"));
        assert!(text(axpy.launch((), (2f32, &x, &x, 2usize))).contains("1 to 3 dimensions, not 0"));
        assert!(text(axpy.launch([1, 2, 3, 4], (2f32, &x, &x, 2usize))).contains("not 4"));
        assert!(text(axpy.launch((1, 2), (2f32, &x, &x, 2usize))).contains("declared for 1 dimension"));
    }
    Ok(())
}

#[test]
fn a_range_has_one_to_three_dimensions() -> Result<()> {
    let (two, three) = (Array::zeros::<i32>((2, 3))?, Array::zeros::<i32>([2, 1, 2])?);
    // SAFETY: as many work-items as elements, each writes its own.
    unsafe { kernel("place")?.launch(two.shape(), (&two,)) }?;
    assert_eq!(two.to_vec::<i32>()?, [0, 1, 2, 10, 11, 12]);
    two.fill(0i32)?;
    // SAFETY: as above.
    unsafe { kernel("place")?.launch((2, 3), (&two,)) }?;
    assert_eq!(two.to_vec::<i32>()?, [0, 1, 2, 10, 11, 12]);
    // SAFETY: as above.
    unsafe { kernel("place3")?.launch((2, 1, 2), (&three,)) }?;
    assert_eq!(three.to_vec::<i32>()?, [0, 1, 100, 101]);
    Ok(())
}

#[derive(KernelStruct, Clone, Copy, Debug)]
#[repr(C)]
struct Inner(i8, f64);

#[derive(KernelStruct, Clone, Copy)]
#[repr(C)]
struct Outer {
    first: i32,
    inner: [Inner; 2],
    weights: [f32; 3],
    last: u16,
}

#[test]
fn a_structure_with_padding_has_the_layout_of_the_kernel() -> Result<()> {
    let y = Array::zeros::<f64>(9)?;
    let inner = [Inner(-1, 0.5), Inner(2, 1.5)];
    let outer = Outer { first: 7, inner, weights: [1.0, 2.0, 3.0], last: 9 };
    // SAFETY: one work-item writes the 9 elements.
    unsafe { kernel("outer")?.launch(1, (outer, &y)) }?;
    let size = size_of::<Outer>() as f64;
    assert_eq!(y.to_vec::<f64>()?, [7.0, -1.0, 0.5, 2.0, 1.5, 1.0, 3.0, 9.0, size]);
    // SAFETY: this launch does not run.
    let wrong = unsafe { kernel("outer")?.launch(1, (inner[0], &y)) };
    assert!(text(wrong).contains("a value of 16 bytes"), "{inner:?}");
    Ok(())
}

fn scale() -> Result<TypedKernel<(f32, In<f32>, Out<f32>)>> {
    // SAFETY: work-item i reads x[i] and writes y[i].
    unsafe { kernel("scale")?.typed() }
}

#[test]
fn a_typed_launch_is_checked_and_safe() -> Result<()> {
    let scale = scale()?;
    let (x, y) = (Array::from_slice(&[1f32, 2.0, 3.0])?, Array::zeros::<f32>(3)?);
    scale.launch(3, (2.0, &x.as_readonly(), &y))?;
    assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
    scale.launch(2, (5.0, &x, &y))?;
    scale.launch(0, (7.0, &x, &y))?;
    assert_eq!(y.to_vec::<f32>()?, [5.0, 10.0, 6.0]);

    let refused = |global: usize, x: &Array, y: &Array| text(scale.launch(global, (1.0, x, y)));
    assert!(refused(4, &x, &y).contains("argument 1: the range [4] has 4 work-items, but the array has 3"));
    assert!(refused(3, &x, &y.index(..2)?).contains("argument 2: the range"));
    assert!(refused(3, &x.cast(DType::F64)?, &y).contains("takes elements of float32, not float64"));
    assert!(refused(3, &x, &y.as_readonly()).contains("read-only"));
    assert!(refused(3, &x, &x).contains("argument 2: the kernel writes to it, and it overlaps argument 1"));
    let both = Array::zeros::<f32>(6)?;
    assert!(refused(3, &both.index(..4)?, &both.index(3..)?).contains("overlaps"));
    assert!(refused(3, &x, &both.index((0..6).step_by(2))?).contains("strided"));
    scale.launch(3, (1.0, &both.index(..3)?, &both.index(3..)?))?.wait()?;
    assert!(text(scale.launch([usize::MAX, 2], (1.0, &x, &y))).contains("declared for 1 dimension"));
    Ok(())
}

#[test]
fn a_typed_kernel_refuses_types_that_differ_from_the_source() -> Result<()> {
    let scale = kernel("scale")?;
    // SAFETY: none of these kernels is launched.
    unsafe {
        assert!(text(scale.typed::<(f32, In<f32>)>()).contains("has 3 parameters, not 2"));
        assert!(
            text(scale.typed::<(f64, In<f32>, Out<f32>)>())
                .contains("parameter 0: typed() was given float64")
        );
        assert!(
            text(scale.typed::<(f32, InOut<f32>, Out<f32>)>()).contains(
                "given a pointer to float32, but the kernel takes a pointer to float32 (read-only)"
            )
        );
        assert!(
            text(scale.typed::<(f32, In<i32>, Out<f32>)>()).contains("given a pointer to int32 (read-only)")
        );
        assert!(
            text(scale.typed::<(In<f32>, In<f32>, Out<f32>)>())
                .contains("given a pointer to float32 (read-only)")
        );
        // A pointer that is not const may be an input.
        scale.typed::<(f32, In<f32>, In<f32>)>()?;
    }
    Ok(())
}

#[test]
fn a_typed_launch_follows_its_data_to_another_queue() -> Result<()> {
    let Some([part, _]) = two_sub_devices(default_queue()?.device())? else { return Ok(()) };
    let there = Queue::new(&part, None, Default::default())?;
    let scale = scale()?;
    let array = |queue| Array::uninit(3, DType::F32, UsmKind::Shared, queue);
    let (x, y) = (array(&there)?, array(&there)?);
    x.fill(3f32)?;
    assert_eq!(scale.launch(3, (2.0, &x, &y))?.queue(), &there);
    assert_eq!(y.to_vec::<f32>()?, [6.0; 3]);
    let mixed = scale.launch(3, (2.0, &x, &array(&default_queue()?)?));
    assert!(matches!(mixed, Err(Error::Placement { .. })));
    Ok(())
}

#[test]
fn shapes_are_numbers_tuples_and_lists() -> Result<()> {
    let sizes: Vec<usize> = vec![2, 3];
    let shape = |array: Array| array.shape().to_vec();
    assert_eq!(shape(Array::zeros::<i8>(4)?), [4]);
    assert_eq!(shape(Array::zeros::<i8>(())?), [0usize; 0]);
    assert_eq!(shape(Array::zeros::<i8>(&sizes)?), [2, 3]);
    assert_eq!(shape(Array::zeros::<i8>(&sizes[..])?), [2, 3]);
    assert_eq!(shape(Array::zeros::<i8>(sizes.clone())?), [2, 3]);
    assert_eq!(shape(Array::full((2, 1, 2), 1i8)?), [2, 1, 2]);
    let x = Array::zeros::<i8>(6)?;
    assert_eq!(shape(x.reshape(&sizes)?), [2, 3]);
    assert_eq!(shape(x.reshape(&sizes[..])?), [2, 3]);
    assert_eq!(shape(x.reshape([3, -1])?), [3, 2]);
    assert_eq!(shape(x.reshape([3isize, -1])?), [3, 2]);
    assert_eq!(shape(x.reshape((sizes[0], -1))?), [2, 3]);
    assert_eq!(shape(x.index(0)?.reshape(())?), [0usize; 0]);
    let error = text(x.reshape([usize::MAX, 2]));
    assert!(error.contains("cannot reshape 6 elements"), "{error}");
    assert!(text(x.reshape((-2, 3))).contains("negative"));
    Ok(())
}
