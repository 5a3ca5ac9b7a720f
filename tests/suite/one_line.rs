//! One-line kernels from Rust: elements, broadcasting, views, overlaps, and reductions.

use usmq::{
    Arg, Array, DType, Elementwise, ElementwiseLaunch, Error, ExpressionOptions, HostMemory, Index,
    Reduction, ReductionLaunch, ReductionOptions, Result, UsmKind,
};

fn of(params: &str, operation: &str) -> Result<Elementwise> {
    // SAFETY: the operations of these tests touch element i only.
    unsafe { Elementwise::new(params, operation) }
}

fn every(step: isize, start: isize) -> Index {
    Index::Slice { start: Some(start), stop: None, step: Some(step) }
}

fn refused(result: Result<usmq::Event>) -> String {
    assert!(matches!(result, Err(Error::Launch { .. })), "{result:?}");
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn a_launch_takes_no_address_by_its_bytes() -> Result<()> {
    // The second definition hides the signature, so that only the form of the argument can be checked.
    let options = ExpressionOptions {
        preamble: "static void elementwise(int) {}".to_owned(),
        ..ExpressionOptions::default()
    };
    // SAFETY: touches element i only.
    let set = unsafe { Elementwise::new_with("const long *x, raw long *y", "y[i] = x[i]", options) }?;
    let (x, y) = (Array::zeros::<i64>([1])?, Array::zeros::<i64>([1])?);
    for value in [Arg::bytes(&y.address().to_ne_bytes()), [1i64].into(), Arg::vector(&[usmq::Scalar::Int(1)])]
    {
        let text = refused(set.launch(&[(&x).into(), value.clone()]));
        assert!(text.contains("argument y") && text.contains("not a vector or structure"), "{text}");
        let text = refused(set.launch(&[value, (&y).into()]));
        assert!(text.contains("argument x"), "{text}");
    }
    Ok(())
}

#[test]
fn each_element_is_computed_from_those_at_its_place() -> Result<()> {
    let axpy = of("float a, const float *x, float *y", "y[i] += a * x[i]")?;
    let x = Array::from_slice(&[1f32, 2.0, 3.0])?;
    let y = Array::full([3], 10f32)?;
    axpy.launch(&[2f32.into(), (&x).into(), (&y).into()])?;
    assert_eq!(y.to_vec::<f32>()?, [12.0, 14.0, 16.0]);
    // The same array twice, and a number in place of an array.
    axpy.launch(&[1f32.into(), (&y).into(), (&y).into()])?;
    axpy.launch(&[1f32.into(), 0.5f32.into(), (&y).into()])?;
    assert_eq!(y.to_vec::<f32>()?, [24.5, 28.5, 32.5]);
    Ok(())
}

#[test]
fn views_and_broadcasting_use_the_right_elements() -> Result<()> {
    let add = of("const T *x, const T *y, T *sum", "sum[i] = x[i] + y[i] + 100 * (i + 10 * n)")?;
    let rows = Array::from_slice(&[0i32, 10])?.reshape([2, 1])?;
    let columns = Array::from_slice(&[1i32, 9, 2, 9, 3, 9])?.index(&[every(2, 0)])?;
    let all = Array::zeros::<i32>([3, 2])?;
    add.launch(&[(&rows).into(), (&columns).into(), (&all.transpose()).into()])?;
    let expected = |row: i32, column: i32| [0, 10][row as usize] + column + 1 + 100 * (row * 3 + column + 60);
    let expected: Vec<i32> = (0..3).flat_map(|column| [expected(0, column), expected(1, column)]).collect();
    assert_eq!(all.to_vec::<i32>()?, expected);
    // Another type, and halves that interleave without an overlap.
    let x = Array::from_slice(&[1u8, 2, 3, 4, 5, 6])?;
    let (even, odd) = (x.index(&[every(2, 0)])?, x.index(&[every(2, 1)])?);
    add.launch(&[(&even).into(), (&odd).into(), (&odd).into()])?;
    assert_eq!(x.to_vec::<u8>()?.len(), 6);
    let empty = Array::zeros::<f64>([0, 4])?;
    add.launch(&[(&empty).into(), 1f64.into(), (&empty).into()])?.wait()
}

#[test]
fn raw_arrays_and_sizes() -> Result<()> {
    let pick = of("raw const int *table, const long *at, int *to", "to[i] = table[at[i]] + table[0]")?;
    let table = Array::from_slice(&[5, 6, 7])?;
    let at = Array::from_slice(&[2i64, 0, 1, 1])?;
    let to = Array::zeros::<i32>([4])?;
    pick.launch(&[(&table).into(), (&at).into(), (&to).into()])?;
    assert_eq!(to.to_vec::<i32>()?, [12, 10, 11, 11]);
    let count = of("raw int *x", "x[i] = i")?;
    assert!(refused(count.launch(&[(&to).into()])).contains("all its arrays are raw; give size"));
    count.launch_with(ElementwiseLaunch { size: Some(3), queue: None }, &[(&to).into()])?;
    assert_eq!(to.to_vec::<i32>()?, [0, 1, 2, 11]);
    Ok(())
}

#[test]
fn arguments_that_do_not_fit_are_refused_before_anything_runs() -> Result<()> {
    let add = of("float a, const float *x, float *y", "y[i] = a + x[i]")?;
    let x = Array::from_slice(&[1f32, 2.0, 3.0, 4.0])?;
    let y = Array::zeros::<f32>([4])?;
    let ints = Array::zeros::<i32>([4])?;
    let short = Array::zeros::<f32>([3])?;
    let part = |start, stop| x.index(&[Index::Slice { start: Some(start), stop: Some(stop), step: None }]);
    let one = Array::zeros::<f32>([1])?;
    let a = || 1f32.into();
    let cases: [(Result<usmq::Event>, &str); 9] = [
        (add.launch(&[a(), (&x).into()]), "takes 3 arguments (a, x, y), 2 were given"),
        (add.launch(&[a(), (&ints).into(), (&y).into()]), "argument x: takes elements of float32, not int32"),
        (add.launch(&[(&x).into(), (&x).into(), (&y).into()]), "argument a: takes a number"),
        (add.launch(&[a(), (&x).into(), a()]), "argument y: takes an array to write to"),
        (add.launch(&[1i32.into(), (&x).into(), (&y).into()]), "argument a: takes float32, not int32"),
        (add.launch(&[a(), (&x).into(), (&y.as_readonly()).into()]), "argument y: the array is read-only"),
        (add.launch(&[a(), (&x).into(), (&short).into()]), "do not broadcast: x [4], y [3]"),
        (add.launch(&[a(), (&x).into(), (&one).into()]), "repeats elements in the common shape [4]"),
        (add.launch(&[a(), (&part(0, 3)?).into(), (&part(1, 4)?).into()]), "it overlaps with x"),
    ];
    for (result, why) in cases {
        let text = refused(result);
        assert!(text.contains(why), "{text}");
    }
    assert_eq!(y.to_vec::<f32>()?, [0.0; 4]);
    let same = of("const T *x, T *y", "y[i] = x[i]")?;
    let text = refused(same.launch(&[(&x).into(), (&ints).into()]));
    assert!(text.contains("T is int32 here, but float32 for x"), "{text}");
    let number = of("T a, raw float *x", "x[0] = a")?;
    let text = refused(number.launch_with(
        ElementwiseLaunch { size: Some(1), queue: None },
        &[usmq::Arg::number(1.into(), None), (&x).into()],
    ));
    assert!(text.contains("its type T is unknown"), "{text}");
    Ok(())
}

#[test]
fn a_mark_that_contradicts_the_declaration_is_refused() -> Result<()> {
    let add = of("const int *x, int *y, raw int *z", "y[i] += x[i]; z[i] = 1")?;
    let (x, y, z) = (Array::full([4], 1i32)?, Array::zeros::<i32>([4])?, Array::zeros::<i32>([4])?);
    for (args, name, why) in [
        ([(&x).into(), Arg::read(&y), (&z).into()], "y", "marked as read, but the kernel may write to it"),
        ([(&x).into(), (&y).into(), Arg::read(&z)], "z", "marked as read"),
        ([Arg::write(&x), (&y).into(), (&z).into()], "x", "marked as written, but the kernel only reads it"),
    ] {
        let text = refused(add.launch(&args));
        assert!(text.contains(&format!("argument {name}")) && text.contains(why), "{text}");
        // The same check with memory of the host among the arguments.
        // SAFETY: without memory of the host this is the safe launch.
        assert_eq!(refused(unsafe { add.launch_with_host(ElementwiseLaunch::default(), &args) }), text);
    }
    let text = refused(add.launch((&x, Arg::read(&y.index(&[every(-1, 3)])?), &z)));
    assert!(text.contains("argument y"), "{text}");
    let mut host = [0i32; 4];
    let args = [(&x).into(), Arg::host_read(HostMemory::from_slice_mut(&mut host), None), Arg::from(&z)];
    // SAFETY: `host` lives until the launch returns, and nothing else uses it.
    let text = refused(unsafe { add.launch_with_host(ElementwiseLaunch::default(), &args) });
    assert!(text.contains("argument y: it is marked as read"), "{text}");
    // SAFETY: the map reads element i of x only.
    let sum = unsafe { Reduction::new("const int *x", "int", "x[i]", "a + b", "0") }?;
    assert!(matches!(sum.launch((Arg::write(&x),)), Err(Error::Launch { .. })));
    // Marks that agree are accepted; a written array without its old elements is still one that others wait for.
    add.launch((Arg::read(&x), Arg::write(&y), &z))?;
    assert_eq!(sum.launch((Arg::read(&y),))?.to_vec::<i32>()?, [4]);
    assert_eq!((x.to_vec::<i32>()?, y.to_vec::<i32>()?), (vec![1; 4], vec![1; 4]));
    assert_eq!((host, z.to_vec::<i32>()?), ([0; 4], vec![1; 4]));
    Ok(())
}

#[test]
fn errors_of_the_source_appear_where_it_is_given() {
    let Err(Error::Value { message: why, .. }) = of("float", "x[i] = 0") else { panic!() };
    assert!(why.contains("its name is missing"), "{why}");
    let Err(Error::KernelBuild { log, .. }) = of("float *x", "x[i] = nothing") else { panic!() };
    assert!(log.contains("error: use of undeclared identifier 'nothing'"), "{log}");
    // SAFETY: not built.
    let result = unsafe { Reduction::new("float *x", "float", "x[i]", "a + b", "0") };
    assert!(matches!(result, Err(Error::Value { message: why, .. }) if why.contains("declare x const")));
}

#[test]
fn reductions_of_all_elements_and_along_each_axis() -> Result<()> {
    // SAFETY: reads element i only.
    let sum = unsafe { Reduction::new("const T *x", "long", "x[i]", "a + b", "0") }?;
    for count in [0usize, 1, 2, 127, 129, 1024, 1025, 100_000] {
        let x = Array::from_slice(&(0..count as i32).collect::<Vec<_>>())?;
        let expected: i64 = (0..count as i64).sum();
        let total = sum.launch(&[(&x).into()])?;
        assert_eq!(
            (total.shape().len(), total.dtype(), total.usm_kind()),
            (0, DType::I64, Some(UsmKind::Device))
        );
        assert_eq!(total.to_vec::<i64>()?, [expected], "{count} elements");
    }
    let shape = [3usize, 2000, 5];
    let x = Array::from_slice(&(0..30_000).map(|k| k % 1013).collect::<Vec<i32>>())?.reshape([3, 2000, 5])?;
    let reversed = x.transpose().copy()?;
    for view in [&x, &reversed.transpose()] {
        for axis in -3..3isize {
            let along = axis.rem_euclid(3) as usize;
            let mut expected = vec![0i64; 30_000 / shape[along]];
            let inner: usize = shape[along + 1..].iter().product();
            for k in 0..30_000usize {
                let to = k / (inner * shape[along]) * inner + k % inner;
                expected[to] += (k % 1013) as i64;
            }
            let launch = ReductionLaunch { axis: Some(axis), keepdims: axis < 0, queue: None };
            let found = sum.launch_with(launch, &[view.into()])?;
            assert_eq!(found.shape().len(), if axis < 0 { 3 } else { 2 });
            assert_eq!(found.to_vec::<i64>()?, expected, "axis {axis}");
        }
    }
    let launch = ReductionLaunch { axis: Some(3), ..ReductionLaunch::default() };
    assert!(matches!(sum.launch_with(launch, &[(&x).into()]), Err(Error::Index { .. })));
    Ok(())
}

#[test]
fn a_reduction_maps_combines_and_finishes() -> Result<()> {
    let options = ReductionOptions {
        post: "sqrt(a / n)".to_owned(),
        deterministic: true,
        expression: ExpressionOptions {
            name: "distance".to_owned(),
            preamble: "static float square(float v) { return v * v; }".to_owned(),
            ..ExpressionOptions::default()
        },
    };
    let params = "const float *x, const float *y, float by";
    // SAFETY: reads element i only.
    let distance =
        unsafe { Reduction::new_with(params, "float", "square(by * (x[i] - y[i]))", "a + b", "0", options) }?;
    let x = Array::from_slice(&vec![3f32; 5000])?;
    let found = distance.launch(&[(&x).into(), 1f32.into(), 2f32.into()])?;
    assert_eq!(found.to_vec::<f32>()?, [4.0]);
    assert_eq!(distance.name(), "distance");
    Ok(())
}

#[test]
fn memory_of_the_host_is_an_argument() -> Result<()> {
    let axpy = of("float a, const float *x, float *y", "y[i] += a * x[i]")?;
    let (x, mut y) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [10f32; 3]);
    let mut step = HostMemory::from_slice(&x);
    step.shape = vec![3];
    step.strides = Some(vec![8]);
    let target = HostMemory::from_slice_mut(&mut y);
    let args = [2f32.into(), Arg::host(step.clone(), None), Arg::host(target.clone(), None)];
    // Only the unsafe method takes addresses.
    let text = refused(axpy.launch(&args));
    assert!(text.contains("launch_with_host"), "{text}");
    // SAFETY: for this and the following launches: the memory is as described, and only the kernel uses it.
    let event = unsafe { axpy.launch_with_host(ElementwiseLaunch::default(), &args) }?;
    assert!(event.done()?);
    assert_eq!(y, [12.0, 16.0, 20.0]);
    let frozen =
        [2f32.into(), Arg::host(step.clone(), None), Arg::host(HostMemory::from_slice(&x[..3]), None)];
    // SAFETY: as above.
    let text = refused(unsafe { axpy.launch_with_host(ElementwiseLaunch::default(), &frozen) });
    assert!(text.contains("argument y: the array is read-only"), "{text}");
    // SAFETY: reads element i only.
    let sum = unsafe { Reduction::new("const T *x", "T", "x[i]", "a + b", "0") }?;
    // SAFETY: as above.
    let total = unsafe { sum.launch_with_host(ReductionLaunch::default(), &[Arg::host(step, None)]) }?;
    assert_eq!(total.to_vec::<f32>()?, [9.0]);
    Ok(())
}
