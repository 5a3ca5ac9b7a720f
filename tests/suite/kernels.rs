//! Kernels from SYCL C++, OpenCL C and SPIR-V: arguments, ranges, and errors before the launch.

use crate::common::{
    IN_ORDER, LOOSE_PROFILING, SOURCE, default_queue, kernel, queues_elsewhere, states, states_of,
};
use crate::spirv::spirv;
use usmq::{
    Arg, Array, DType, Error, Index, Kernel, KernelOptions, Launch, Param, Queue, Result, Scalar, Timestamps,
    UsmKind, with_queue,
};

const OPENCL: &str = "
#ifndef TERM
#define TERM 0
#endif
kernel void axpy(float a, global const float *x, global float *y, ulong n) {
  size_t i = get_global_id(0);
  if (i < n) y[i] += a * x[i] + TERM;
}
kernel void reverse(global const int *x, global int *y, local int *scratch) {
  size_t i = get_global_id(0), l = get_local_id(0), n = get_local_size(0);
  scratch[l] = x[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  y[i] = scratch[n - 1 - l];
}
kernel void scalars(char a, uchar b, short c, ushort d, int e, uint f, long g, ulong h, float i, double j,
                    global double *out) {
  out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e;
  out[5] = f; out[6] = g; out[7] = h; out[8] = i; out[9] = j;
}
";

/// The queue, if its device takes OpenCL C and SPIR-V.
fn opencl() -> Result<Option<Queue>> {
    let queue = default_queue()?;
    let is_opencl = queue.device().backend() == usmq::Backend::OpenCl;
    if !is_opencl {
        println!("{} is not of the opencl backend: this test is left out", queue.device());
    }
    Ok(is_opencl.then_some(queue))
}

/// A kernel of a module that a compiler has written, or whose mistakes usmq finds.
fn spirv_kernel(module: &[u8], name: &str, options: KernelOptions) -> Result<Kernel> {
    // SAFETY: the tests pass no other modules.
    unsafe { Kernel::from_spirv(module, name, options) }
}

fn opencl_kernel(name: &str, flags: &[&str]) -> Result<Kernel> {
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    Kernel::from_opencl(OPENCL, name, KernelOptions { flags, ..KernelOptions::default() })
}

#[test]
fn a_source_with_too_many_nested_brackets_is_refused_before_the_compiler() -> Result<()> {
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    let sycl = |depth| {
        format!("#include <usmq/kernel.h>\nUSMQ_KERNEL(1) void f(int *x) {{ x[0] = {}; }}", nested(depth))
    };
    Kernel::from_sycl(&sycl(200), "f")?;
    let refused = Kernel::from_sycl(&sycl(20_000), "f");
    assert!(
        matches!(&refused, Err(Error::KernelBuild { log, .. }) if log.contains("1000 brackets")),
        "{refused:?}"
    );
    let source = format!("kernel void f(global int *x) {{ x[0] = {}; }}", nested(20_000));
    let refused = Kernel::from_opencl(&source, "f", KernelOptions::default());
    assert!(
        matches!(&refused, Err(Error::KernelBuild { log, .. }) if log.contains("1000 brackets")),
        "{refused:?}"
    );
    Ok(())
}

/// Launches a kernel that stays inside its arguments.
fn start(kernel: &Kernel, global: &[usize], local: Option<&[usize]>, args: &[Arg]) -> Result<usmq::Event> {
    // SAFETY: each caller gives as many work-items as its arrays have elements, or arguments that are refused.
    unsafe { kernel.launch_with(Launch { global, local, queue: None }, args) }
}

/// The text of a refused launch; checks that the error has the documented type.
fn refusal(kernel: &Kernel, global: &[usize], local: Option<&[usize]>, args: &[Arg]) -> String {
    match start(kernel, global, local, args) {
        Err(Error::Launch { message: text, .. }) => text,
        other => unreachable!("not refused as a launch: {other:?}"),
    }
}

#[test]
fn a_sycl_kernel_runs_and_its_signature_is_read() -> Result<()> {
    let queue = default_queue()?;
    let axpy = Kernel::from_sycl(SOURCE, "axpy")?;
    assert_eq!(axpy.name(), "axpy");
    let f32s = Some(DType::F32);
    let expected =
        [Param::Scalar(DType::F32), Param::Read(f32s), Param::ReadWrite(f32s), Param::Scalar(DType::U64)];
    assert_eq!(axpy.params(), Some(&expected[..]));
    let x = Array::from_slice(&[1f32, 2.0, 3.0])?;
    let y = Array::full([3], 0.5f32)?;
    let event = start(&axpy, &[64], None, &[2f32.into(), (&x).into(), (&y).into(), 3u64.into()])?;
    assert_eq!(event.queue(), &queue);
    assert_eq!(y.to_vec::<f32>()?, [2.5, 4.5, 6.5]);
    event.wait()?;
    assert!(event.done()?);
    // Clones and a second kernel of the same source share the build.
    start(
        &axpy.clone(),
        &[3],
        None,
        &[1f32.into(), Arg::read(&x), (&y).into(), Arg::number(Scalar::Int(3), None)],
    )?;
    assert_eq!(y.to_vec::<f32>()?, [3.5, 6.5, 9.5]);
    Ok(())
}

#[test]
fn one_kernel_runs_in_every_context_of_its_data() -> Result<()> {
    let home = default_queue()?;
    let advance = kernel("advance", &home)?;
    for queue in queues_elsewhere(&home)?.into_iter().chain([home]) {
        let x = states_of(&[1, 2, 3], &queue)?;
        assert_eq!(start(&advance, &[3], None, &[(&x).into(), 7u32.into()])?.queue(), &queue);
        assert_eq!(x.to_vec::<u32>()?, [1, 2, 3].map(|state| crate::common::advanced(state, 7)), "{queue}");
    }
    Ok(())
}

#[test]
fn opencl_c_runs_with_flags_and_every_type_of_scalar() -> Result<()> {
    let Some(queue) = opencl()? else { return Ok(()) };
    let x = Array::from_slice(&[1f32, 2.0])?;
    for (flags, expected) in [(&[][..], [3f32, 5.0]), (&["-D", "TERM=10"], [13.0, 15.0])] {
        let y = Array::full([2], 1f32)?;
        let axpy = opencl_kernel("axpy", flags)?;
        start(&axpy, &[2], None, &[2f32.into(), (&x).into(), (&y).into(), 2u64.into()])?;
        assert_eq!(y.to_vec::<f32>()?, expected);
    }
    let out = Array::uninit([10], DType::F64, UsmKind::Shared, &queue)?;
    let args: [Arg; 11] = [
        (-1i8).into(),
        255u8.into(),
        (-300i16).into(),
        65535u16.into(),
        i32::MIN.into(),
        u32::MAX.into(),
        (-(1i64 << 40)).into(),
        (1u64 << 50).into(),
        0.5f32.into(),
        (-1e300f64).into(),
        Arg::write(&out),
    ];
    start(&opencl_kernel("scalars", &[])?, &[1], None, &args)?;
    let expected = [
        -1.0,
        255.0,
        -300.0,
        65535.0,
        f64::from(i32::MIN),
        f64::from(u32::MAX),
        -((1i64 << 40) as f64),
        (1u64 << 50) as f64,
        0.5,
        -1e300,
    ];
    assert_eq!(out.to_vec::<f64>()?, expected);
    Ok(())
}

#[test]
fn local_memory_is_private_to_its_work_group() -> Result<()> {
    let Some(queue) = opencl()? else { return Ok(()) };
    let reverse = opencl_kernel("reverse", &[])?;
    let values: Vec<i32> = (0..64).collect();
    let x = Array::from_slice(&values)?;
    let y = Array::zeros::<i32>([64])?;
    for group in [1, 8, 64] {
        start(&reverse, &[64], Some(&[group]), &[(&x).into(), (&y).into(), Arg::local(group * 4)])?;
        let expected: Vec<i32> = values.chunks(group).flat_map(|chunk| chunk.iter().rev().copied()).collect();
        assert_eq!(y.to_vec::<i32>()?, expected);
    }
    let text = refusal(&reverse, &[64], Some(&[8]), &[(&x).into(), (&y).into(), Arg::local(0)]);
    assert!(text.contains("argument 2"), "{text}");
    let text = refusal(&reverse, &[64], Some(&[8]), &[(&x).into(), (&y).into(), (&y).into()]);
    assert!(text.contains("argument 2") && text.contains("local memory"), "{text}");
    let text = refusal(&reverse, &[64], Some(&[8]), &[(&x).into(), Arg::local(32), Arg::local(32)]);
    assert!(text.contains("argument 1") && text.contains("pointer to int32"), "{text}");
    let too_much = queue.device().local_mem_size() as usize + 1;
    let text = refusal(&reverse, &[64], Some(&[8]), &[(&x).into(), (&y).into(), Arg::local(too_much)]);
    assert!(text.contains(&too_much.to_string()), "{text}");
    Ok(())
}

#[test]
fn a_spirv_module_runs_with_and_without_parameters_named() -> Result<()> {
    let Some(queue) = opencl()? else { return Ok(()) };
    let params = vec![Param::ReadWrite(Some(DType::U32)), Param::Scalar(DType::U32)];
    for params in [None, Some(params)] {
        let named = params.is_some();
        let add = spirv_kernel(&spirv(), "add", KernelOptions { params, ..KernelOptions::default() })?;
        let x = states_of(&[10, 20, 30], &queue)?;
        start(&add, &[3], None, &[(&x).into(), 5u32.into()])?;
        assert_eq!(x.to_vec::<u32>()?, [15, 25, 35]);
        let text = refusal(&add, &[3], None, &[(&x).into()]);
        assert!(text.contains("takes 2 arguments") && text.contains("1 were given"), "{text}");
        let plain = [(&x).into(), Arg::number(Scalar::Int(1), None)];
        assert_eq!(start(&add, &[3], None, &plain).is_ok(), named, "a number needs a type");
    }
    let unknown = spirv_kernel(&spirv(), "subtract", KernelOptions::default());
    assert!(matches!(unknown, Err(Error::KernelBuild { .. })), "{unknown:?}");
    Ok(())
}

#[test]
fn a_build_error_has_name_device_and_compiler_log() -> Result<()> {
    let queue = default_queue()?;
    let sycl = SOURCE.replace("x[ITEM] = ITEM;", "x[ITEM] = no_such_name;");
    let in_opencl = OPENCL.replace("a * x[i]", "a * no_such_name");
    let mut built = vec![Kernel::from_sycl(&sycl, "place1")];
    if opencl()?.is_some() {
        built.push(Kernel::from_opencl(&in_opencl, "axpy", KernelOptions::default()));
    }
    for result in built {
        let error = result.expect_err("the source is wrong");
        let text = error.to_string();
        let Error::KernelBuild { name, device, log, .. } = error else { panic!("{text}") };
        assert!(log.contains("no_such_name"), "{log}");
        assert_eq!(device, queue.device().to_string());
        assert!(text.contains(&name) && text.contains(&device) && text.contains(&log), "{text}");
    }
    let missing = Kernel::from_sycl(SOURCE, "no_such_kernel");
    assert!(
        matches!(&missing, Err(Error::KernelBuild { name, .. }) if name == "no_such_kernel"),
        "{missing:?}"
    );
    assert!(matches!(Kernel::from_sycl(SOURCE, ""), Err(Error::Value { .. })));
    // usmq does not cache a failure: the same name builds from the right source.
    assert!(Kernel::from_sycl(SOURCE, "place1").is_ok());
    Ok(())
}

#[test]
fn wrong_arguments_are_refused_by_position_before_the_launch() -> Result<()> {
    let queue = default_queue()?;
    let axpy = kernel("axpy", &queue)?;
    let x = Array::full([4], 1f32)?;
    let y = Array::full([4], 1f32)?;
    let wrong_type = Array::zeros::<f64>([4])?;
    let strided =
        Array::full([8], 1f32)?.index(&[Index::Slice { start: None, stop: None, step: Some(2) }])?;
    let (a, n): (Arg, Arg) = (2f32.into(), 4u64.into());
    let good = [a.clone(), (&x).into(), (&y).into(), n.clone()];
    for count in [0, 1, 3] {
        let text = refusal(&axpy, &[4], None, &good[..count]);
        assert!(
            text.contains("takes 4 arguments") && text.contains(&format!("{count} were given")),
            "{text}"
        );
    }
    let cases: [(usize, Arg, &str); 9] = [
        (0, 2f64.into(), "float64"),
        (0, (&x).into(), "array"),
        (0, Arg::number(Scalar::Complex(num_complex::Complex::new(1.0, 1.0)), None), "float32"),
        (1, (&wrong_type).into(), "float64"),
        (1, 1f32.into(), "pointer"),
        (2, (&strided).into(), "strided"),
        (2, Arg::from(y.as_readonly()), "read-only"),
        (3, 4i64.into(), "int64"),
        (3, Arg::number(Scalar::Int(-1), None), "uint64"),
    ];
    for (position, wrong, part) in cases {
        let mut args = good.clone();
        args[position] = wrong;
        let text = refusal(&axpy, &[4], None, &args);
        assert!(text.contains(&format!("argument {position}")), "{text}");
        assert!(text.contains(part) && text.contains("\"axpy\""), "{part:?} is missing in {text}");
    }
    assert_eq!(y.to_vec::<f32>()?, [1.0; 4], "nothing was launched");
    // A read-only array is accepted if the kernel only reads it or the caller marks it as read.
    start(&axpy, &[4], None, &[a.clone(), Arg::from(&x.as_readonly()), (&y).into(), n.clone()])?;
    assert_eq!(y.to_vec::<f32>()?, [3.0; 4]);
    for result in
        [y.as_readonly().fill(1f32), y.as_readonly().copy_from_slice(&[1f32; 4]), y.as_readonly().assign(&x)]
    {
        assert!(
            matches!(&result, Err(Error::Value { message: text, .. }) if text.contains("read-only")),
            "{result:?}"
        );
    }
    Ok(())
}

/// From the second launch over a range on, usmq names the work-group size that the driver suggests.
#[test]
fn each_launch_over_a_range_runs_in_the_same_work_groups() -> Result<()> {
    let Some(queue) = opencl()? else { return Ok(()) };
    let source = "
kernel void sizes(global ulong *out) {
  size_t item = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
  out[item] = (get_local_size(2) * 10000 + get_local_size(1)) * 10000 + get_local_size(0);
}
kernel __attribute__((reqd_work_group_size(4, 2, 1))) void required(global ulong *out) {
  out[get_global_id(1) * get_global_size(0) + get_global_id(0)] = get_local_size(1) * 10000 + get_local_size(0);
}";
    let sizes = Kernel::from_opencl(source, "sizes", KernelOptions::default())?;
    let ranges: [&[usize]; 9] =
        [&[1], &[7], &[256], &[1000], &[65536], &[10007], &[24, 36], &[3, 1000], &[5, 6, 8]];
    let first_and_later = |kernel: &Kernel, range: &[usize]| -> Result<()> {
        let out = Array::builder::<u64>(range.iter().product::<usize>()).queue(&queue).zeroed().build()?;
        start(kernel, range, None, &[(&out).into()])?;
        let first = out.to_vec::<u64>()?;
        assert!(!first.contains(&0), "{range:?}");
        for launch in 2..5 {
            out.fill(0u64)?;
            start(kernel, range, None, &[(&out).into()])?;
            assert_eq!(out.to_vec::<u64>()?, first, "launch {launch} over {range:?}");
        }
        let graph = usmq::capture(|| start(kernel, range, None, &[(&out).into()]))?;
        out.fill(0u64)?;
        graph.replay()?;
        assert_eq!(out.to_vec::<u64>()?, first, "a replay over {range:?}");
        Ok(())
    };
    for range in ranges {
        first_and_later(&sizes, range)?;
    }
    first_and_later(&Kernel::from_opencl(source, "required", KernelOptions::default())?, &[6, 8])
}

#[test]
fn the_last_dimension_of_an_nd_range_varies_fastest() -> Result<()> {
    let queue = default_queue()?;
    for (name, global) in [("place1", &[24][..]), ("place2", &[4, 6]), ("place3", &[2, 3, 4])] {
        let x = states(24, &queue)?;
        let place = kernel(name, &queue)?;
        let groups: [Option<&[usize]>; 3] = [None, Some(&[1, 1, 1][..global.len()]), Some(global)];
        for local in groups {
            x.fill(0u32)?;
            start(&place, global, local, &[(&x).into()])?;
            let expected: Vec<u32> = (0..24)
                .map(|mut number| {
                    let (mut code, mut unit) = (0, 1);
                    for extent in global.iter().rev() {
                        code += number % extent * unit;
                        number /= extent;
                        unit *= 100;
                    }
                    code as u32
                })
                .collect();
            assert_eq!(x.to_vec::<u32>()?, expected, "{name} in groups of {local:?}");
        }
    }
    let [size, group, place] = [states(24, &queue)?, states(24, &queue)?, states(24, &queue)?];
    start(
        &kernel("groups", &queue)?,
        &[4, 6],
        Some(&[2, 3]),
        &[(&size).into(), (&group).into(), (&place).into()],
    )?;
    assert_eq!(size.to_vec::<u32>()?, [203; 24]);
    let at = |cell: fn(u32, u32) -> u32| (0..24).map(|i| cell(i / 6, i % 6)).collect::<Vec<_>>();
    assert_eq!(group.to_vec::<u32>()?, at(|row, column| row / 2 * 100 + column / 3));
    assert_eq!(place.to_vec::<u32>()?, at(|row, column| row % 2 * 100 + column % 3));
    Ok(())
}

#[test]
fn wrong_ranges_are_refused_before_the_launch() -> Result<()> {
    let queue = default_queue()?;
    let place = kernel("place1", &queue)?;
    let x = states(8, &queue)?;
    let too_many = queue.device().max_work_group_size() + 1;
    let cases: [(&[usize], Option<&[usize]>, &str); 7] = [
        (&[], None, "1 to 3 dimensions"),
        (&[1, 1, 1, 1], None, "1 to 3 dimensions"),
        (&[8], Some(&[3]), "does not divide"),
        (&[8], Some(&[0]), "at least one work-item"),
        (&[8], Some(&[16]), "does not divide"),
        (&[8], Some(&[8, 1]), "differ in dimensions"),
        (&[too_many], Some(&[too_many]), "work-group"),
    ];
    for (global, local, part) in cases {
        let text = refusal(&place, global, local, &[(&x).into()]);
        assert!(text.contains(part) && text.contains("\"place1\""), "{part:?} is missing in {text}");
    }
    Ok(())
}

#[test]
fn a_launch_of_no_work_items_does_nothing_and_keeps_the_order() -> Result<()> {
    let queue = default_queue()?;
    let advance = kernel("advance", &queue)?;
    let x = states_of(&[5; 4], &queue)?;
    let empty = states(0, &queue)?;
    start(&advance, &[4], None, &[(&x).into(), 3_000_000u32.into()])?;
    let event = start(&advance, &[0], None, &[(&x).into(), 1u32.into()])?;
    event.wait()?;
    assert_eq!(x.to_vec::<u32>()?, [crate::common::advanced(5, 3_000_000); 4]);
    start(&advance, &[0], None, &[(&empty).into(), 1u32.into()])?.wait()?;
    let place = kernel("place3", &queue)?;
    start(&place, &[3, 0, 2], None, &[(&empty).into()])?.wait()
}

#[test]
fn timestamps_come_from_profiling_queues_only() -> Result<()> {
    let plain = default_queue()?;
    let timed = Queue::new(plain.device(), None, LOOSE_PROFILING)?;
    assert!(with_queue(&plain, || kernel("nothing", &plain)).is_ok());
    let nothing = kernel("nothing", &plain)?;
    let run = |queue| with_queue(queue, || start(&nothing, &[1], None, &[0u32.into()]));
    let refused = run(&plain)?.timestamps();
    assert!(matches!(refused, Err(Error::Value { .. })), "{refused:?}");
    let advance = kernel("advance", &plain)?;
    let x = states(1, &timed)?;
    x.fill(0u32)?;
    let Timestamps { submit: submitted, start: started, end: ended } =
        start(&advance, &[1], None, &[(&x).into(), 10_000_000u32.into()])?.timestamps()?;
    assert!(submitted <= started && started < ended, "{submitted} {started} {ended}");
    assert!(ended - started > 1_000_000, "ten million steps take more than a millisecond");
    assert_eq!(Queue::new(&plain, None, IN_ORDER)?, plain);
    Ok(())
}

/// The log of a build that must fail.
fn log_of(built: Result<Kernel>) -> String {
    match built {
        Err(Error::KernelBuild { log, .. }) => log,
        other => unreachable!("not refused as a build: {other:?}"),
    }
}

#[test]
fn a_source_without_code_is_refused_before_compilation() -> Result<()> {
    let queue = default_queue()?;
    for text in ["", " \n\t", "// only a comment", "/* one */\n // two\n#\n"] {
        let log = log_of(Kernel::from_sycl(text, "k"));
        assert!(log.contains("source") && log.contains("no code"), "{text:?}: {log}");
        if queue.device().backend() == usmq::Backend::OpenCl {
            let log = log_of(Kernel::from_opencl(text, "k", KernelOptions::default()));
            assert!(log.contains("source") && log.contains("no code"), "{text:?}: {log}");
        }
    }
    Ok(())
}

#[test]
fn bytes_that_are_not_spirv_are_refused_before_the_driver_reads_them() -> Result<()> {
    if opencl()?.is_none() {
        return Ok(());
    }
    let good = spirv();
    let mut endless = good.clone();
    endless[20..24].copy_from_slice(&[17, 0, 0xff, 0xff]);
    let mut stuck = good.clone();
    stuck[20..24].copy_from_slice(&[17, 0, 0, 0]);
    let cases: [(&[u8], &str); 8] = [
        (b"", "empty"),
        (b"no module, but long enough for a header", "07230203"),
        (b"kernel void add(global uint *x, uint t) {}", "from_opencl"),
        (b"BC\xc0\xde and the rest of some LLVM bitcode", "LLVM"),
        (&good[..4], "header"),
        (&good[..good.len() - 1], "multiple of 4"),
        (&endless, "instruction"),
        (&stuck, "instruction"),
    ];
    for (module, part) in cases {
        let log = log_of(spirv_kernel(module, "add", KernelOptions::default()));
        assert!(log.contains(part), "{part:?} is missing in {log}");
    }
    let log = log_of(spirv_kernel(&spirv(), "subtract", KernelOptions::default()));
    assert!(log.contains("\"add\""), "the log must name the available kernels: {log}");
    Ok(())
}

/// Kernels whose parameters the source alone does not reveal, and local memory in each form.
const HIDDEN: &str = r#"
struct Point { float x; int y; long z; };
using part = sycl::local_accessor<int, 1>;
using group = syclexp::work_group_memory<int[]>;
KERNEL(1) point(int *y, Point p) { y[ITEM] = p.y; }
KERNEL(1) accessor(int *y, sycl::local_accessor<int, 1> own) { own[0] = 7; y[ITEM] = own[0]; }
KERNEL(1) counted(int *y, sycl::local_accessor<int, 1> own) { y[ITEM] = own.size(); }
KERNEL(1) hidden_accessor(int *y, part own) { own[0] = 7; y[ITEM] = own[0]; }
KERNEL(1) hidden_group(int *y, group own) { own[0] = 7; y[ITEM] = own[0]; }
"#;

fn hidden(name: &str) -> Result<Kernel> {
    Kernel::from_sycl(&format!("#include <sycl/sycl.hpp>\n{SOURCE}{HIDDEN}"), name)
}

#[test]
fn local_memory_without_a_local_size_is_refused() -> Result<()> {
    default_queue()?;
    let y = Array::zeros::<i32>([4])?;
    let mut kernels = vec![hidden("accessor")?, hidden("hidden_accessor")?, hidden("hidden_group")?];
    if opencl()?.is_some() {
        let source =
            "kernel void k(global int *y, local int *own) { own[0] = 7; y[get_global_id(0)] = own[0]; }";
        kernels.push(Kernel::from_opencl(source, "k", KernelOptions::default())?);
    }
    for kernel in kernels {
        for global in [4, 0] {
            let text = refusal(&kernel, &[global], None, &[(&y).into(), Arg::local(16)]);
            assert!(text.contains("argument 1") && text.contains("local_size"), "{text}");
        }
        start(&kernel, &[4], Some(&[2]), &[(&y).into(), Arg::local(16)])?;
        assert_eq!(y.to_vec::<i32>()?, [7; 4], "{kernel:?}");
        y.fill(0)?;
    }
    Ok(())
}

#[test]
fn a_local_accessor_counts_elements_of_its_own_type() -> Result<()> {
    default_queue()?;
    let y = Array::zeros::<i32>([4])?;
    start(&hidden("counted")?, &[4], Some(&[2]), &[(&y).into(), Arg::local(24)])?;
    assert_eq!(y.to_vec::<i32>()?, [6; 4]);
    let text = refusal(&hidden("counted")?, &[4], Some(&[2]), &[(&y).into(), Arg::local(10)]);
    assert!(text.contains("argument 1") && text.contains("10 bytes") && text.contains("int32"), "{text}");
    Ok(())
}

#[test]
fn arguments_are_checked_against_the_sizes_known_to_the_runtime() -> Result<()> {
    if opencl()?.is_none() {
        return Ok(());
    }
    let y = Array::zeros::<i32>([4])?;
    let point = hidden("point")?;
    for (wrong, part) in
        [(1f32.into(), "float32"), (Arg::from(&y), "array"), (Arg::local(16), "16 bytes of local")]
    {
        let text = refusal(&point, &[4], Some(&[2]), &[(&y).into(), wrong]);
        assert!(text.contains("\"point\", argument 1") && text.contains(part), "{text}");
        assert!(text.contains("16 bytes") && !text.contains("UR_RESULT"), "{text}");
    }
    let add = spirv_kernel(&spirv(), "add", KernelOptions::default())?;
    let x = Array::zeros::<u32>([3])?;
    let text = refusal(&add, &[3], None, &[(&x).into(), 5u64.into()]);
    assert!(text.contains("\"add\", argument 1") && text.contains("uint64 5"), "{text}");
    assert!(text.contains("4 bytes") && text.contains("8 bytes"), "{text}");
    for (params, part) in [
        (vec![Param::ReadWrite(Some(DType::U32))], "takes 2"),
        (vec![Param::ReadWrite(Some(DType::U32)), Param::Scalar(DType::F64)], "parameter 1"),
        (vec![Param::Local, Param::Scalar(DType::U32)], "parameter 0"),
    ] {
        let options = KernelOptions { params: Some(params), ..KernelOptions::default() };
        let refused = spirv_kernel(&spirv(), "add", options);
        assert!(
            matches!(&refused, Err(Error::Value { message: text, .. }) if text.contains(part)),
            "{part}: {refused:?}"
        );
    }
    Ok(())
}

#[test]
fn a_launch_in_other_groups_than_required_names_kernel_and_sizes() -> Result<()> {
    if opencl()?.is_none() {
        return Ok(());
    }
    let source = "__attribute__((reqd_work_group_size(8, 1, 1)))
        kernel void eight(global int *x, float value) { x[get_global_id(0)] = value; }";
    let eight = Kernel::from_opencl(source, "eight", KernelOptions::default())?;
    let x = Array::zeros::<i32>([16])?;
    let text = refusal(&eight, &[16], Some(&[4]), &[(&x).into(), 1.5f32.into()]);
    for part in ["\"eight\"", "local range [4]", "required work-group size [8]"] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    start(&eight, &[16], Some(&[8]), &[(&x).into(), 1.5f32.into()])?;
    assert_eq!(x.to_vec::<i32>()?, [1; 16]);
    Ok(())
}

#[test]
fn a_compiler_defined_macro_does_not_hide_parameters() -> Result<()> {
    default_queue()?;
    // Only the compiler knows which branch it takes and what a header defines.
    let source = format!(
        "{SOURCE}\n#if __has_include(<cstddef>)\n#define TWO unsigned *x, unsigned n\n#else\n#define TWO int a\n#endif\nKERNEL(1) two(TWO) {{ x[ITEM] = n; }}"
    );
    let two = Kernel::from_sycl(&source, "two")?;
    let x = Array::zeros::<u32>([3])?;
    start(&two, &[3], None, &[(&x).into(), 5u32.into()])?;
    assert_eq!(x.to_vec::<u32>()?, [5; 3]);
    let text = refusal(&two, &[3], None, &[(&x).into()]);
    assert!(text.contains("takes 2 arguments"), "{text}");
    Ok(())
}

#[test]
fn dimensions_defined_by_a_macro_match_the_range() -> Result<()> {
    let queue = default_queue()?;
    let x = states_of(&[0; 24], &queue)?;
    for (name, declared, global) in
        [("place1", 1, &[4, 6][..]), ("place2", 2, &[24]), ("place3", 3, &[4, 6]), ("groups", 2, &[24])]
    {
        let args: Vec<Arg> = (0..if name == "groups" { 3 } else { 1 }).map(|_| (&x).into()).collect();
        let text = refusal(&kernel(name, &queue)?, global, None, &args);
        assert!(text.contains(&format!("declared for {declared} dimension")), "{text}");
    }
    assert_eq!(x.to_vec::<u32>()?, [0; 24], "nothing was launched");
    Ok(())
}
