//! y = a * x + y on the CPU device, from a project that only depends on usmq.

use usmq::{Array, Kernel, with_queue};

const SOURCE: &str = r#"
#include <sycl/sycl.hpp>
namespace syclext = sycl::ext::oneapi;
namespace syclexp = sycl::ext::oneapi::experimental;

extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>))
void axpy(float a, const float *x, float *y, size_t n) {
  size_t i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
  if (i < n)
    y[i] += a * x[i];
}
"#;

fn main() -> usmq::Result<()> {
    with_queue("cpu", || -> usmq::Result<()> {
        let x = Array::from_slice(&[1f32, 2.0, 3.0])?;
        let y = Array::zeros::<f32>([3])?;
        let axpy = Kernel::from_sycl(SOURCE, "axpy")?;
        // SAFETY: axpy writes y[0..n] only, and n is the length of both arrays.
        unsafe { axpy.launch(3, (2f32, &x, &y, 3usize)) }?;
        assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
        Ok(())
    })?;
    println!("downstream: ok");
    Ok(())
}
