//! Emulated GPUs and the OpenCL layer from Rust; each test runs in its own process because the runtime reads its settings once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;
use usmq::{Array, DType, Kernel, Queue, UsmKind, devices, with_queue};

const IN_CHILD: &str = "USMQ_TEST_OF_EMULATED_GPUS";

const AXPY: &str = r#"
#include <sycl/sycl.hpp>
namespace ext = sycl::ext::oneapi;
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((ext::experimental::nd_range_kernel<1>))
void axpy(float a, const float *x, float *y) {
  size_t i = ext::this_work_item::get_nd_item<1>().get_global_linear_id();
  y[i] += a * x[i];
}"#;

/// Runs `body` in a new process with these variables; `test` is the name of the test that calls this.
fn in_child(test: &str, variables: &[(&str, &str)], body: fn()) {
    if std::env::var_os(IN_CHILD).is_some() {
        return body();
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env_clear().env(IN_CHILD, "1");
    let sanitizers = ["ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"];
    for kept in ["HOME", "PATH", "LD_LIBRARY_PATH"].into_iter().chain(sanitizers) {
        if let Some(value) = std::env::var_os(kept) {
            child.env(kept, value);
        }
    }
    let done = child.envs(variables.iter().copied()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

fn queue_on(target: &str) -> Queue {
    with_queue(target, usmq::current_queue).unwrap()
}

fn names() -> Vec<String> {
    devices().unwrap().iter().map(|device| device.filter_string().unwrap_or_default().to_owned()).collect()
}

#[test]
fn emulated_gpus_are_listed_beside_the_cpu() {
    in_child("emulated_gpus_are_listed_beside_the_cpu", &[("USMQ_EMULATE_GPUS", "3")], || {
        assert_eq!(names(), ["opencl:gpu:0", "opencl:gpu:1", "opencl:gpu:2", "opencl:cpu:0"]);
        let [first, second] = ["gpu:0", "gpu:1"].map(queue_on);
        assert_eq!(first.context(), second.context());
        assert_ne!(first, second);
    });
}

#[test]
fn a_program_may_set_the_variable_before_its_first_call() {
    in_child("a_program_may_set_the_variable_before_its_first_call", &[], || {
        // SAFETY: no other thread reads or writes the environment yet.
        unsafe { std::env::set_var("USMQ_EMULATE_GPUS", "1") };
        assert_eq!(names(), ["opencl:gpu:0", "opencl:cpu:0"]);
    });
}

#[test]
fn a_kernel_computes_on_the_second_gpu() {
    in_child("a_kernel_computes_on_the_second_gpu", &[("USMQ_EMULATE_GPUS", "2")], || {
        with_queue("gpu:1", || -> usmq::Result<()> {
            let x = Array::from_slice(&[1f32, 2.0, 3.0])?;
            let y = Array::zeros::<f32>([3])?;
            let axpy = Kernel::from_sycl(AXPY, "axpy")?;
            // SAFETY: axpy writes y[0..3] only.
            unsafe { axpy.launch([3], &[2f32.into(), (&x).into(), (&y).into()]) }?;
            assert_eq!(y.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
            assert!(y.queue().device().name().starts_with("Emulated GPU 1 ("));
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn the_memory_of_an_emulated_gpu_is_limited() {
    let variables = [("USMQ_EMULATE_GPUS", "1"), ("USMQ_EMULATE_GPU_MEMORY", "32MiB")];
    in_child("the_memory_of_an_emulated_gpu_is_limited", &variables, || {
        let queue = queue_on("gpu:0");
        assert_eq!(queue.device().global_mem_size(), 32 << 20);
        let allocate = |kind| Array::uninit([20 << 20], DType::U8, kind, &queue);
        let held = allocate(UsmKind::Device).unwrap();
        let error = allocate(UsmKind::Shared).unwrap_err();
        assert!(matches!(error, usmq::Error::Allocation { total, .. } if total == 32 << 20), "{error}");
        drop(held);
        usmq::memory::trim(None).unwrap();
        allocate(UsmKind::Shared).unwrap();
    });
}

#[test]
fn a_wrong_setting_is_an_error_that_names_the_value() {
    let variables = [("USMQ_EMULATE_GPUS", "many")];
    in_child("a_wrong_setting_is_an_error_that_names_the_value", &variables, || {
        let error = devices().unwrap_err().to_string();
        assert_eq!(error, "USMQ_EMULATE_GPUS=\"many\": expected a number of GPUs from 1 to 64");
        // SAFETY: as above.
        unsafe { std::env::remove_var("USMQ_EMULATE_GPUS") };
        assert!(!devices().unwrap().is_empty(), "the error is not remembered");
    });
}

#[test]
fn a_missing_layer_is_an_error() {
    let variables = [("USMQ_EMULATE_GPUS", "1"), ("USMQ_LAYERS_LIBRARY", "/nonexistent/layer.so")];
    in_child("a_missing_layer_is_an_error", &variables, || {
        let error = devices().unwrap_err().to_string();
        assert!(error.contains("/nonexistent/layer.so, which does not exist"), "{error}");
    });
}

#[test]
fn the_parts_of_the_layer_in_use_are_reported() {
    let variables = [("USMQ_EMULATE_GPUS", "1")];
    in_child("the_parts_of_the_layer_in_use_are_reported", &variables, || {
        let layers = usmq::layers().unwrap();
        assert!(layers.waits && layers.emulator, "{layers:?}");
    });
}

#[test]
fn a_file_that_is_not_a_layer_leaves_both_parts_off() {
    let variables = [("USMQ_EMULATE_GPUS", "1"), ("USMQ_LAYERS_LIBRARY", "/etc/passwd")];
    in_child("a_file_that_is_not_a_layer_leaves_both_parts_off", &variables, || {
        assert_eq!(names(), ["opencl:cpu:0"]);
        let layers = usmq::layers().unwrap();
        assert!(!layers.waits && !layers.emulator, "{layers:?}");
        let report = usmq::doctor().to_string();
        for text in
            ["the layer that prevents this is off", "USMQ_EMULATE_GPUS=1, but no emulated GPU is visible"]
        {
            assert!(report.contains(text), "{report}");
        }
    });
}

#[test]
fn a_deleted_current_folder_is_an_error_of_the_first_query() {
    in_child("a_deleted_current_folder_is_an_error_of_the_first_query", &[], || {
        let folder = std::env::temp_dir().join(format!("usmq-deleted-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        std::env::set_current_dir(&folder).unwrap();
        std::fs::remove_dir(&folder).unwrap();
        let error = devices().unwrap_err();
        assert!(matches!(error, usmq::Error::RuntimeNotFound { .. }), "{error}");
        assert!(error.to_string().contains("current folder of the process, which was deleted"), "{error}");
        std::env::set_current_dir("/").unwrap();
        assert!(!devices().unwrap().is_empty(), "the error is not remembered");
    });
}
