//! Kernels: a tuple of arguments, safe typed launches, structures, work-groups, one-line kernels.

use usmq::prelude::*;

const SOURCE: &str = r#"
#include <usmq/kernel.h>
USMQ_KERNEL(1) void axpy(float a, const float *x, float *y) { y[global_id(0)] += a * x[global_id(0)]; }

struct Line { float slope; double offset; };
USMQ_KERNEL(1) void draw(Line line, float *y) { y[global_id(0)] = line.slope * global_id(0) + line.offset; }

USMQ_KERNEL(2) void transpose(const float *x, float *y) { y[global_id(1) * global_size(0) + global_id(0)] = x[global_linear_id()]; }
"#;

#[derive(KernelStruct, Clone, Copy)]
#[repr(C)]
struct Line {
    slope: f32,
    offset: f64,
}

pub(crate) fn main() -> usmq::Result<()> {
    let x = Array::from_slice(&[1f32, 2.0, 3.0, 4.0])?;
    let y = Array::zeros::<f32>(4)?;

    // A kernel can write anywhere, so a launch is unsafe ...
    let axpy = Kernel::from_sycl(SOURCE, "axpy")?;
    // SAFETY: with 4 work-items axpy touches the 4 elements of x and y only.
    unsafe { axpy.launch(x.size(), (2f32, &x, &y)) }?;
    // ... unless its accesses are promised once: each launch then checks types, sizes and overlaps.
    // SAFETY: work-item i reads x[i] and y[i], and writes y[i].
    let axpy = unsafe { axpy.typed::<(f32, In<f32>, InOut<f32>)>() }?;
    axpy.launch(x.size(), (1.0, &x, &y))?;
    println!("axpy       {:?}", y.to_vec::<f32>()?);
    assert_eq!(y.to_vec::<f32>()?, [3.0, 6.0, 9.0, 12.0]);

    // SAFETY: with 4 work-items draw writes the 4 elements of y only.
    unsafe { Kernel::from_sycl(SOURCE, "draw")?.launch(4, (Line { slope: 2.0, offset: 0.5 }, &y)) }?;
    println!("structure  {:?}", y.to_vec::<f32>()?);
    assert_eq!(y.to_vec::<f32>()?, [0.5, 2.5, 4.5, 6.5]);

    // Two dimensions, in work-groups of one row.
    let transpose = Kernel::from_sycl(SOURCE, "transpose")?;
    let launch = Launch { global: &[2, 2], local: Some(&[1, 2]), ..Launch::default() };
    // SAFETY: with 2 x 2 work-items transpose touches the 4 elements of x and y only.
    unsafe { transpose.launch_with(launch, (&x, &y)) }?;
    println!("groups     {:?}", y.to_vec::<f32>()?);
    assert_eq!(y.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);

    // SAFETY: work-item i touches element i of x and y only.
    let square = unsafe { Elementwise::new("const T *x, T *y", "y[i] = x[i] * x[i]") }?;
    square.launch((&x, &y))?;
    // SAFETY: the map reads element i of x only.
    let sum = unsafe { Reduction::new("const T *x", "T", "x[i]", "a + b", "0") }?;
    let sum = sum.launch((&y,))?.to_vec::<f32>()?;
    println!("reduction  {sum:?}");
    assert_eq!(sum, [30.0]);
    Ok(())
}
