//! Builders, and what scopes, names and handles accept and return.

use crate::common::default_queue;
use std::panic::AssertUnwindSafe;
use usmq::prelude::*;
use usmq::{
    Aspect, Backend, Context, DeviceFilter, DeviceType, Error, MemoryKind, QueueProperties, Result, Selector,
    Target, UsmKind,
};

#[test]
fn a_scope_returns_what_its_body_returns() -> Result<()> {
    let name = String::from("cpu");
    let queue = with_queue(&name, current_queue)?;
    assert_eq!(queue.with(|| 42), 42);
    assert_eq!(queue.with(|| std::num::Wrapping(3)).0, 3);
    assert_eq!(queue.with(current_queue)?, queue);
    // An error type of the caller.
    #[derive(Debug)]
    struct Mine(String);
    impl From<Error> for Mine {
        fn from(error: Error) -> Self {
            Self(error.to_string())
        }
    }
    let failed: std::result::Result<(), Mine> = with_queue("accelerator:9", || Ok(()));
    assert!(failed.is_err_and(|Mine(text)| text.contains("no device matches")));
    let before = default_queue()?;
    let inside = std::panic::catch_unwind(AssertUnwindSafe(|| queue.with(|| panic!("inside"))));
    assert!(inside.is_err() && current_queue()? == before);
    Ok(())
}

#[test]
fn a_target_is_anything_that_names_a_queue() -> Result<()> {
    let queue = Queue::get("cpu")?;
    let selector: Selector = "cpu".parse()?;
    let device = queue.device();
    for target in [
        Target::from(&selector),
        selector.into(),
        device.into(),
        (&"cpu".to_owned()).into(),
        Some("cpu").into(),
        (&queue).into(),
    ] {
        assert_eq!(Queue::get(target)?, queue);
    }
    Ok(())
}

#[test]
fn a_queue_builder_makes_cached_and_own_queues() -> Result<()> {
    let cached = Queue::get("cpu")?;
    assert_eq!(Queue::builder("cpu").build()?, cached);
    let properties = QueueProperties { in_order: false, profiling: true, ..QueueProperties::default() };
    let loose = Queue::builder(&cached).out_of_order().profiling().build()?;
    assert_eq!(loose, cached.with_properties(properties)?);
    let context = Context::new(&[cached.device().clone()])?;
    assert_eq!(Queue::builder("cpu").context(&context).build()?.context(), &context);
    let own = Queue::builder(&loose).profiling().uncached().build()?;
    assert!(own != loose && own != cached && own.in_order() && own.profiling());
    assert_eq!((own.context(), own.device()), (cached.context(), cached.device()));
    assert_ne!(Queue::builder("cpu").uncached().build()?, Queue::builder("cpu").uncached().build()?);
    // Memory is shared with the cached queue, and ordered.
    let x = Array::builder::<u32>(1000).queue(&own).fill(5).build()?;
    drop(own);
    let y = x.on_queue(&cached)?;
    y.assign(&x.cast(DType::U32)?)?;
    assert_eq!(y.to_vec::<u32>()?, [5; 1000]);
    assert!(matches!(Queue::builder("cpu:77").uncached().build(), Err(Error::DeviceNotFound { .. })));
    Ok(())
}

#[test]
fn an_array_builder_chooses_place_and_content() -> Result<()> {
    let queue = Queue::builder("cpu").out_of_order().build()?;
    for kind in UsmKind::ALL {
        let array = Array::builder::<f64>((2, 2)).kind(kind).queue(&queue).zeroed().build()?;
        assert_eq!((array.usm_kind(), array.queue(), array.dtype()), (Some(kind), &queue, DType::F64));
        assert_eq!(array.to_vec::<f64>()?, [0.0; 4]);
    }
    let again = Array::builder::<bool>(()).zeroed().fill(true).build()?;
    assert_eq!((again.shape(), again.to_vec::<bool>()?), (&[][..], vec![true]));
    assert_eq!(Array::builder::<i8>([0, 5]).fill(1).build()?.size(), 0);
    assert!(matches!(Array::builder::<i8>([usize::MAX, 2]).build(), Err(Error::Value { .. })));
    Ok(())
}

#[test]
fn names_of_enums_parse_and_print() -> Result<()> {
    assert_eq!("level_zero".parse::<Backend>()?.to_string(), "level_zero");
    assert_eq!("system".parse::<MemoryKind>()?, MemoryKind::System);
    assert_eq!("shared".parse::<MemoryKind>()?.to_string(), "shared");
    assert!("heap".parse::<MemoryKind>().is_err_and(|error| error.to_string().contains("\"system\"")));
    assert_eq!("f4".parse::<DType>()?, DType::F32);
    assert!(matches!("f3".parse::<DType>(), Err(Error::Type { .. })));
    let device = Queue::get("cpu")?.device().clone();
    assert_eq!((device.device_type(), device.has(Aspect::Cpu)?), (DeviceType::Cpu, true));
    assert!(!device.has(Aspect::Gpu)? && device.aspects()?.contains(&Aspect::UsmHostAllocations));
    assert!(device.has("cpu")? && device.has("fp65").is_err());
    let filter =
        DeviceFilter::new().aspect(Aspect::Cpu).without_aspect(Aspect::Gpu).device_type(DeviceType::Cpu);
    let texts = DeviceFilter::new().aspect("cpu").without_aspect("gpu").device_type("cpu");
    let backend = device.backend();
    assert_eq!(filter.clone().backend(backend), texts.clone().backend(backend.name()));
    assert!(filter.devices()?.contains(&device) && texts.devices()?.contains(&device));
    assert!(DeviceFilter::new().backend("openCL").devices().is_err());
    Ok(())
}

#[test]
fn element_types_of_other_crates_are_reexported() -> Result<()> {
    let x = Array::full(2, usmq::f16::from_f32(1.5))?;
    assert_eq!(x.cast(DType::F32)?.to_vec::<f32>()?, [1.5; 2]);
    let z = Array::full(1, usmq::Complex32::new(1.0, -1.0))?;
    assert_eq!(z.to_vec::<usmq::Complex<f32>>()?[0].im, -1.0);
    let column = usmq::interop::arrow::Column::from_array("x", &Array::from_slice(&[1i32, 2])?)?;
    assert_eq!(usmq::arrow_array::Array::len(&column.to_arrow()?), 2);
    Ok(())
}
