//! Vectors, structures and shaped local memory as arguments of kernels.

use crate::common::default_queue;
use usmq::{Arg, Array, Backend, DType, Error, Kernel, KernelOptions, Launch, Param, Result, Scalar};

/// The size of a SYCL vector of three elements is that of four; the device header's has no padding.
const SYCL: &str = r#"
#include <sycl/sycl.hpp>
namespace syclexp = sycl::ext::oneapi::experimental;
#define KERNEL extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void
#define ITEM sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_local_linear_id()
struct Inner { short a; double b; };
struct Large { int first; Inner inner[4]; float *y; char last; };
KERNEL three(float *y, sycl::float3 v, float after) { y[0] = v[0]; y[1] = v[1]; y[2] = v[2]; y[3] = after; }
KERNEL large(Large s) { s.y[0] = s.first + s.inner[3].b; s.y[1] = s.last; }
KERNEL square(int *y, sycl::local_accessor<int, 2> own) { own[1][2] = ITEM; y[ITEM] = own[1][2] + own.size(); }
KERNEL cube(int *y, sycl::local_accessor<int, 3> own) {
  y[ITEM] = own.get_range()[0] * 100 + own.get_range()[1] * 10 + own.get_range()[2];
}
template <typename T> SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void scale(T *y, T a) {
  y[ITEM] *= a;
}
"#;

const HEADER: &str = "
#include <usmq/kernel.h>
struct Pair { int a; float b; };
USMQ_KERNEL(1) void three(float *y, float3 v, float after) { y[0] = v.x; y[1] = v.y; y[2] = v.z; y[3] = after; }
USMQ_KERNEL(1) void pair(float *y, Pair p, int2 q) { y[0] = p.a; y[1] = p.b; y[2] = q.x; y[3] = q.y; }
";

/// Launches a kernel that stays inside its arguments.
fn start(kernel: &Kernel, global: usize, local: Option<usize>, args: &[Arg]) -> Result<usmq::Event> {
    let local = local.map(|local| [local]);
    let launch = Launch { global: &[global], local: local.as_ref().map(|local| &local[..]), queue: None };
    // SAFETY: each caller gives arrays of at least as many elements as the kernel uses.
    unsafe { kernel.launch_with(launch, args) }
}

fn refusal(kernel: &Kernel, args: &[Arg]) -> String {
    match start(kernel, 1, Some(1), args) {
        Err(Error::Launch { message: text, .. }) => text,
        other => unreachable!("not refused as a launch: {other:?}"),
    }
}

#[test]
fn vectors_arrive_in_each_form() -> Result<()> {
    let is_opencl = default_queue()?.device().backend() == Backend::OpenCl;
    let mut kernels = vec![Kernel::from_sycl(SYCL, "three")?, Kernel::from_sycl(HEADER, "three")?];
    if is_opencl {
        let source =
            "kernel void three(global float *y, float3 v, float after) { vstore3(v, 0, y); y[3] = after; }";
        kernels.push(Kernel::from_opencl(source, "three", KernelOptions::default())?);
    }
    let y = Array::zeros::<f32>([4])?;
    let numbers = Arg::vector(&[Scalar::Int(5), Scalar::Float(6.5), Scalar::Bool(true)]);
    for kernel in &kernels {
        start(kernel, 1, None, &[(&y).into(), [1f32, 2.0, 3.0].into(), 4f32.into()])?;
        assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0], "{kernel:?}");
        start(kernel, 1, None, &[(&y).into(), numbers.clone(), 4f32.into()])?;
        assert_eq!(y.to_vec::<f32>()?, [5.0, 6.5, 1.0, 4.0], "{kernel:?}");
        for (wrong, part) in [
            ([1f32, 2.0].into(), "a vector of 2 float32, but the kernel takes a vector of 3 float32"),
            ([1f64; 3].into(), "a vector of 3 float64"),
            (Arg::vector(&[Scalar::Int(1); 4]), "(1, 1, 1, 1)"),
            (Arg::bytes(&[0; 8]), "a value of 8 bytes"),
            (1f32.into(), "float32"),
            ((&y).into(), "an array"),
        ] {
            let text = refusal(kernel, &[(&y).into(), wrong, 4f32.into()]);
            assert!(text.contains("\"three\", argument 1") && text.contains(part), "{text}");
        }
    }
    let list = "three(float32 *, float32[3], float32)";
    assert_eq!(kernels[0].signature(), list);
    assert_eq!(kernels[0].params().map(|params| params[1].clone()), Some(vector(16)));
    assert_eq!(kernels[1].params().map(|params| params[1].clone()), Some(vector(12)));
    Ok(())
}

fn vector(bytes: usize) -> Param {
    Param::Vector { element: DType::F32, count: 3, bytes }
}

#[test]
fn structures_are_passed_by_their_bytes() -> Result<()> {
    default_queue()?;
    let y = Array::zeros::<f32>([4])?;
    let pair = Kernel::from_sycl(HEADER, "pair")?;
    let bytes: Vec<u8> = [7i32.to_ne_bytes(), 2.5f32.to_ne_bytes()].concat();
    start(&pair, 1, None, &[(&y).into(), Arg::bytes(&bytes), [8i32, 9].into()])?;
    assert_eq!(y.to_vec::<f32>()?, [7.0, 2.5, 8.0, 9.0]);
    let text = refusal(&pair, &[(&y).into(), Arg::bytes(&bytes[1..]), [8i32, 9].into()]);
    assert!(text.contains("argument 1") && text.contains("7 bytes") && text.contains("8 bytes"), "{text}");
    let text = refusal(&pair, &[(&y).into(), Arg::bytes(&[]), [8i32, 9].into()]);
    assert!(text.contains("at least one"), "{text}");

    #[repr(C)]
    struct Large {
        first: i32,
        inner: [(i64, f64); 4],
        y: usize,
        last: i8,
    }
    let mut bytes = [0u8; size_of::<Large>()];
    bytes[..4].copy_from_slice(&10i32.to_ne_bytes());
    bytes[8 + 3 * 16 + 8..][..8].copy_from_slice(&0.5f64.to_ne_bytes());
    bytes[72..80].copy_from_slice(&y.address().to_ne_bytes());
    bytes[80] = 3;
    start(&Kernel::from_sycl(SYCL, "large")?, 1, None, &[Arg::bytes(&bytes)])?.wait()?;
    assert_eq!(y.to_vec::<f32>()?[..2], [10.5, 3.0]);
    Ok(())
}

#[test]
fn a_local_accessor_takes_extents_of_its_dimensions() -> Result<()> {
    default_queue()?;
    let y = Array::zeros::<i32>([2])?;
    let (square, cube) = (Kernel::from_sycl(SYCL, "square")?, Kernel::from_sycl(SYCL, "cube")?);
    let shaped = |extents: &[usize]| Arg::local_array(extents, DType::I32);
    start(&square, 1, Some(1), &[(&y).into(), shaped(&[2, 3])?])?;
    assert_eq!(y.to_vec::<i32>()?[0], 6);
    start(&cube, 2, Some(2), &[(&y).into(), shaped(&[2, 3, 4])?])?;
    assert_eq!(y.to_vec::<i32>()?, [234, 234]);
    for (wrong, part) in [
        (Arg::local(24), "1-dimensional local memory"),
        (shaped(&[24])?, "a 2-dimensional local_accessor"),
        (Arg::local_array(&[2, 3], DType::F32)?, "float32"),
        (shaped(&[0, 3])?, "above 0"),
        (shaped(&[1 << 30, 4])?, "local memory"),
    ] {
        let text = refusal(&square, &[(&y).into(), wrong]);
        assert!(text.contains("\"square\"") && text.contains(part), "{text}");
    }
    for extents in [&[][..], &[1; 4], &[usize::MAX, 2]] {
        assert!(matches!(shaped(extents), Err(Error::Value { .. })), "{extents:?}");
    }
    Ok(())
}

#[test]
fn numbers_convert_for_the_instance_of_a_template() -> Result<()> {
    default_queue()?;
    let scale = Kernel::from_sycl(SYCL, "scale<double>")?;
    let y = Array::from_slice(&[1.5f64, 2.0])?;
    start(&scale, 2, Some(2), &[(&y).into(), Arg::number(Scalar::Int(2), None)])?;
    assert_eq!(y.to_vec::<f64>()?, [3.0, 4.0]);
    let single = Array::from_slice(&[1f32])?;
    assert!(refusal(&scale, &[(&single).into(), 2f64.into()]).contains("float64"));
    Ok(())
}
