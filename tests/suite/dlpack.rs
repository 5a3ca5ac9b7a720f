//! DLPack with the crate dlpark: exports pass its checks, and its tensors are imported.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use crate::common::{advanced, default_queue, kernel, other_root, queues_elsewhere};
use crate::structs::{eventually, without_leaks};
use dlpark::ffi::{
    DLDataType, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use dlpark::metadata::Dynamic;
use dlpark::{DlpackFlags, ManagedTensorBase, TensorRef};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use usmq::interop::dlpack::{
    self as ours, Destination, Export, ExportedTensor, ForeignTensor, Import, Managed, Order, adopt,
    allocate, device_of, export, import, lend, work_queue, work_stream,
};
use usmq::{Array, DType, Error, Index, Queue, QueueProperties, Result, UsmKind, with_queue};

const HOST: Destination = Destination { kind: 1, id: 0 };
const REVERSED: Index = Index::Slice { start: None, stop: None, step: Some(-1) };
const EVERY_SECOND: Index = Index::Slice { start: Some(1), stop: None, step: Some(2) };

/// One struct, as declared by usmq and by dlpark.
trait Both {
    type Ours: Managed;
    type Theirs: ManagedTensorBase;
}

struct Old;
struct New;

impl Both for Old {
    type Ours = ours::DLManagedTensor;
    type Theirs = DLManagedTensor;
}

impl Both for New {
    type Ours = ours::DLManagedTensorVersioned;
    type Theirs = DLManagedTensorVersioned;
}

/// A tensor of usmq, imported by dlpark.
fn given<B: Both>(local: ExportedTensor<B::Ours>) -> dlpark::Managed<B::Theirs> {
    // SAFETY: a fresh tensor with this layout, whose owner dlpark is from here on.
    unsafe { dlpark::Managed::from_raw(local.into_raw().cast()) }.unwrap()
}

/// A tensor of dlpark, imported by usmq.
fn taken<B: Both>(theirs: dlpark::Managed<B::Theirs>) -> ForeignTensor<B::Ours> {
    // SAFETY: as above, the other way.
    unsafe { ForeignTensor::from_raw(theirs.into_raw().cast()) }.unwrap()
}

fn six(kind: UsmKind) -> Result<Array> {
    let queue = default_queue()?;
    let array = Array::uninit([2, 3], DType::F32, kind, &queue)?;
    array.copy_from_slice(&[0f32, 1.0, 2.0, 3.0, 4.0, 5.0])?;
    Ok(array)
}

fn views(array: &Array) -> Result<Vec<Array>> {
    Ok(vec![
        array.clone(),
        array.transpose(),
        array.index(&[Index::ALL, EVERY_SECOND])?,
        array.index(&[REVERSED])?,
        array.index(&[REVERSED, REVERSED])?,
        array.index(&[Index::At(1), Index::At(2)])?,
        array.index(&[Index::Slice { start: Some(2), stop: None, step: None }])?,
    ])
}

/// Fields that any consumer reads, as dlpark has checked them.
fn check(tensor: &TensorRef<'_>, array: &Array, device: Destination) {
    let numbers = |list: &[isize]| list.iter().map(|number| *number as i64).collect::<Vec<_>>();
    let shape = array.shape().iter().map(|extent| *extent as i64).collect::<Vec<_>>();
    assert_eq!(tensor.shape(), shape);
    assert_eq!(tensor.strides().unwrap_or(&[]), numbers(array.strides()));
    assert!(tensor.dtype().is::<f32>());
    assert_eq!((tensor.device().device_type.0 as i32, tensor.device().device_id), (device.kind, device.id));
    let first = tensor.data_ptr() as usize + tensor.byte_offset() as usize;
    // Without elements it is the address of the memory, which dpnp and torch require.
    assert!(first == array.address() || array.size() == 0 && first != 0);
}

fn our_exports_pass<B: Both>() -> Result<()> {
    for kind in UsmKind::ALL {
        for view in views(&six(kind)?)? {
            let theirs = given::<B>(export(&view, Export::default())?);
            check(&theirs.validate_export().unwrap(), &view, device_of(&view));
            if kind != UsmKind::Device {
                let asked = Export { destination: Some(HOST), copy: Some(false), ..Export::default() };
                let theirs = given::<B>(export(&view, asked)?);
                check(&theirs.validate_export().unwrap(), &view, HOST);
            }
        }
    }
    Ok(())
}

#[test]
fn exports_pass_the_checks_of_dlpark() -> Result<()> {
    without_leaks(|| {
        our_exports_pass::<Old>()?;
        our_exports_pass::<New>()
    })
}

#[test]
fn a_host_export_of_device_memory_is_a_flagged_copy() -> Result<()> {
    without_leaks(|| {
        let array = six(UsmKind::Device)?;
        let asked = Export { destination: Some(HOST), ..Export::default() };
        let theirs = given::<New>(export(&array, asked)?);
        assert_eq!(theirs.flags(), DlpackFlags::IS_COPIED);
        assert_eq!(theirs.version(), DLPackVersion::CURRENT);
        let tensor = theirs.validate().unwrap();
        // SAFETY: host memory without writers.
        assert_eq!(unsafe { tensor.cpu_slice::<f32>() }.unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        Ok(())
    })
}

#[test]
fn a_tensor_keeps_its_memory_and_can_be_deleted_on_any_thread() -> Result<()> {
    without_leaks(|| {
        let asked = Export { destination: Some(HOST), ..Export::default() };
        let theirs = given::<New>(export(&six(UsmKind::Host)?, asked)?);
        let others = (0..20).map(|_| six(UsmKind::Host)).collect::<Result<Vec<_>>>()?;
        let read = move || {
            let tensor = theirs.validate().unwrap();
            // SAFETY: host memory without writers.
            unsafe { tensor.cpu_slice::<f32>() }.unwrap().to_vec()
        };
        assert_eq!(thread::spawn(read).join().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        drop(others);
        Ok(())
    })
}

#[test]
fn a_read_only_array_stays_read_only_and_has_no_legacy_tensor() -> Result<()> {
    let array = six(UsmKind::Host)?.as_readonly();
    let mut theirs = given::<New>(export(&array, Export::default())?);
    assert_eq!(theirs.flags(), DlpackFlags::READ_ONLY);
    assert!(theirs.validate_mut().is_err());
    assert!(matches!(export::<ours::DLManagedTensor>(&array, Export::default()), Err(Error::Interop { .. })));
    assert!(matches!(lend(&array, Order::Unordered), Err(Error::Interop { .. })));
    Ok(())
}

/// Memory that counts how often it is dropped.
struct Watched<T> {
    memory: T,
    ends: Arc<AtomicUsize>,
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        self.ends.fetch_add(1, Ordering::SeqCst);
    }
}

/// A tensor that dlpark makes, and how often it was deleted.
fn made<B: Both, T: Send + Sync>(
    memory: T,
    place: impl Fn(&T) -> (*mut c_void, DLDevice),
    (shape, strides): (&[i64], &[i64]),
    fields: impl Fn(&mut DLTensor),
) -> (dlpark::Managed<B::Theirs>, Arc<AtomicUsize>) {
    let ends = Arc::new(AtomicUsize::new(0));
    let owner = Arc::new(Watched { memory, ends: ends.clone() });
    let (data, device) = place(&owner.memory);
    let mut tensor = Dynamic::new(shape, strides).initialize_as::<B::Theirs>(owner).unwrap();
    tensor.set_data(data).set_device(device).set_dtype(DLDataType::F32);
    fields(tensor.tensor_mut());
    // SAFETY: the owner has the memory; a test that breaks the other fields hands it to usmq, which checks them.
    (unsafe { tensor.finish() }, ends)
}

fn host_memory(values: &[f32]) -> (Vec<f32>, impl Fn(&Vec<f32>) -> (*mut c_void, DLDevice) + use<>) {
    (values.to_vec(), |values: &Vec<f32>| (values.as_ptr().cast_mut().cast(), DLDevice::CPU))
}

fn on_device(array: &Array) -> (*mut c_void, DLDevice) {
    let device_id = device_of(array).id;
    (array.address() as *mut c_void, DLDevice { device_type: DLDeviceType::ONEAPI, device_id })
}

fn host_tensors_are_copied<B: Both>() -> Result<()> {
    let (values, place) = host_memory(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let (theirs, ends) = made::<B, _>(values, place, (&[3, 2], &[-2, 1]), |tensor| tensor.byte_offset = 16);
    for wanted in [UsmKind::Device, UsmKind::Shared] {
        let copied = Import { kind: Some(wanted), ..Import::default() };
        let (values, place) = host_memory(&[0.0, 1.0, 2.0, 3.0]);
        let (theirs, ends) = made::<B, _>(values, place, (&[2, 2], &[1, 2]), |_| {});
        let array = import(taken::<B>(theirs), copied)?;
        assert_eq!(ends.load(Ordering::SeqCst), 1);
        assert_eq!((array.usm_kind(), array.shape()), (Some(wanted), &[2, 2][..]));
        assert_eq!(array.to_vec::<f32>()?, [0.0, 2.0, 1.0, 3.0]);
    }
    let array = import(taken::<B>(theirs), Import::default())?;
    assert_eq!(array.to_vec::<f32>()?, [4.0, 5.0, 2.0, 3.0, 0.0, 1.0]);
    assert_eq!(ends.load(Ordering::SeqCst), 1);
    Ok(())
}

#[test]
fn a_host_tensor_of_dlpark_is_copied_and_deleted_at_once() -> Result<()> {
    without_leaks(|| {
        host_tensors_are_copied::<Old>()?;
        host_tensors_are_copied::<New>()
    })
}

fn usm_is_taken_in_place<B: Both>() -> Result<()> {
    for kind in UsmKind::ALL {
        let memory = six(kind)?;
        let address = memory.address();
        let (theirs, ends) = made::<B, _>(memory, on_device, (&[2, 3], &[3, 1]), |_| {});
        let array = import(taken::<B>(theirs), Import { copy: Some(false), ..Import::default() })?;
        assert_eq!((array.address(), array.usm_kind()), (address, Some(kind)));
        let view = array.index(&[REVERSED])?;
        drop(array);
        assert_eq!(ends.load(Ordering::SeqCst), 0);
        assert_eq!(view.to_vec::<f32>()?, [3.0, 4.0, 5.0, 0.0, 1.0, 2.0]);
        drop(view);
        assert!(eventually(|| Ok(ends.load(Ordering::SeqCst) == 1))?);
    }
    Ok(())
}

#[test]
fn usm_of_dlpark_is_imported_in_place_and_deleted_after_its_last_use() -> Result<()> {
    without_leaks(|| {
        usm_is_taken_in_place::<Old>()?;
        usm_is_taken_in_place::<New>()
    })
}

type Break = fn(&mut DLTensor);

const BROKEN: [Break; 9] = [
    |tensor| tensor.ndim = -1,
    |tensor| tensor.shape = std::ptr::null_mut(),
    |tensor| tensor.data = std::ptr::null_mut(),
    |tensor| tensor.byte_offset = u64::MAX,
    |tensor| tensor.dtype = DLDataType::F4E2M1FN,
    |tensor| tensor.dtype = DLDataType::F8E4M3,
    |tensor| tensor.dtype.lanes = 4,
    |tensor| tensor.device.device_type = DLDeviceType::METAL,
    // SAFETY: there are two extents.
    |tensor| unsafe { *tensor.shape = -2 },
];

#[test]
fn import_deletes_an_invalid_tensor_once_and_adopt_leaves_it() -> Result<()> {
    without_leaks(|| {
        for broken in BROKEN {
            let make =
                || made::<New, _>(six(UsmKind::Shared).unwrap(), on_device, (&[2, 3], &[3, 1]), broken);
            let (theirs, ends) = make();
            assert!(matches!(import(taken::<New>(theirs), Import::default()), Err(Error::Interop { .. })));
            assert_eq!(ends.load(Ordering::SeqCst), 1);

            let (theirs, ends) = make();
            // SAFETY: a live tensor, which dlpark keeps if it is refused.
            let refused =
                unsafe { adopt(theirs.as_ptr().cast::<ours::DLManagedTensorVersioned>(), Ok::<_, Error>) };
            assert!(matches!(refused, Err(Error::Interop { .. })));
            assert_eq!(ends.load(Ordering::SeqCst), 0);
            drop(theirs);
            assert_eq!(ends.load(Ordering::SeqCst), 1);
        }
        Ok(())
    })
}

/// GPUs of Intel have device memory in the upper half of the address space. The tests have no such memory, so the
/// import gets as far as the question whether the address is USM.
#[test]
fn addresses_of_the_upper_half_are_not_refused_for_their_size() -> Result<()> {
    without_leaks(|| {
        for address in [0xff00_ffff_ffef_0000usize, 0xffff_d556_aa56_0000, usize::MAX - 4095] {
            let (theirs, ends) =
                made::<New, _>(six(UsmKind::Shared)?, on_device, (&[2, 3], &[3, 1]), |tensor| {
                    tensor.data = address as *mut _;
                });
            let refused = import(taken::<New>(theirs), Import::default()).unwrap_err().to_string();
            assert!(refused.contains("is not USM of"), "{refused}");
            assert_eq!(ends.load(Ordering::SeqCst), 1);
        }
        Ok(())
    })
}

#[test]
fn the_subbyte_padding_flag_is_ignored_for_larger_types() -> Result<()> {
    without_leaks(|| {
        let (mut theirs, _) = made::<New, _>(six(UsmKind::Shared)?, on_device, (&[2, 3], &[3, 1]), |_| {});
        // SAFETY: no element is smaller than a byte.
        *unsafe { theirs.flags_mut() } = DlpackFlags::IS_SUBBYTE_TYPE_PADDED | DlpackFlags::READ_ONLY;
        let array = import(taken::<New>(theirs), Import::default())?;
        assert!(array.is_readonly());
        assert_eq!(array.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        Ok(())
    })
}

#[test]
fn an_export_ordered_on_a_queue_does_not_wait_and_follows_all_work() -> Result<()> {
    without_leaks(|| {
        const STEPS: u32 = 200_000_000;
        let queue = default_queue()?;
        let profiling = QueueProperties { profiling: true, ..QueueProperties::default() };
        let consumer = Queue::new(&queue, None, profiling)?;
        let advance = kernel("advance", &queue)?;
        let x = Array::uninit([4], DType::U32, UsmKind::Device, &queue)?;
        x.copy_from_slice(&[1u32, 2, 3, 4])?;
        // SAFETY: `advance` writes one element for each item.
        let running = unsafe { advance.launch([4], &[(&x).into(), STEPS.into()]) }?;
        let tensor = export::<ours::DLManagedTensorVersioned>(
            &x,
            Export { order: Order::Queue(&consumer), ..Export::default() },
        )?;
        let borrowed = lend(&x, Order::Queue(&consumer))?;
        assert!(!running.done()?);
        // The consumer's own work on its queue, unknown to the array.
        consumer.wait()?;
        assert!(running.done()?);
        drop((tensor, borrowed));
        assert_eq!(x.to_vec::<u32>()?, [1, 2, 3, 4].map(|state| advanced(state, STEPS)));
        Ok(())
    })
}

#[test]
fn the_working_device_is_the_current_queue_if_it_has_an_ordinal() -> Result<()> {
    let queue = default_queue()?;
    let device = Destination { kind: 14, id: queue.device().ordinal() as i32 };
    assert_eq!(work_queue(HOST)?, None);
    let profiling = QueueProperties { profiling: true, ..QueueProperties::default() };
    let named = Queue::new(queue.device(), None, profiling)?;
    with_queue(&named, || {
        assert_eq!(work_queue(device)?, Some(named.clone()));
        Ok::<_, Error>(())
    })?;
    for elsewhere in queues_elsewhere(&queue)? {
        with_queue(&elsewhere, || {
            assert_eq!(
                work_queue(device)?,
                Some(Queue::new(queue.device(), None, QueueProperties::default())?)
            );
            Ok::<_, Error>(())
        })?;
    }
    if let Some(other) = other_root(&queue)? {
        let id = other.ordinal() as i32;
        assert_eq!(
            work_queue(Destination { kind: 14, id })?.map(|queue| queue.device().clone()),
            Some(other)
        );
    }
    for unknown in [(14, 99), (14, -1), (2, 0), (0, 0)] {
        let asked = work_queue(Destination { kind: unknown.0, id: unknown.1 });
        assert!(matches!(asked, Err(Error::Interop { .. })));
    }
    let address = work_stream(&named)?;
    assert_eq!(address, work_stream(&named)?);
    let handle = std::ptr::NonNull::new(address as *mut std::ffi::c_void).expect("an address");
    // SAFETY: `work_stream` returns the address of a queue that lives.
    assert_eq!(unsafe { Queue::from_raw(handle) }?, named);
    Ok(())
}

#[test]
fn a_new_tensor_matches_its_prototype() -> Result<()> {
    without_leaks(|| {
        for device in [HOST, device_of(&six(UsmKind::Device)?)] {
            let (values, place) = host_memory(&[]);
            let (prototype, _) = made::<New, _>(values, place, (&[2, 3], &[0, 0]), |tensor| {
                tensor.device.device_type = DLDeviceType(device.kind as u32);
                tensor.device.device_id = device.id;
            });
            // SAFETY: it has no writers.
            let like = std::ptr::from_ref(unsafe { prototype.tensor() }).cast::<ours::DLTensor>();
            // SAFETY: dlpark's struct has this layout, and lives.
            let like = unsafe { &*like };
            // SAFETY: it has its two extents.
            let theirs = given::<New>(unsafe { allocate(like) }?);
            let tensor = theirs.validate_export().unwrap();
            assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3][..], Some(&[3, 1][..])));
            assert_eq!(tensor.device().device_type.0 as i32, device.kind);
            assert_ne!(tensor.data_ptr() as usize, 0);
        }
        Ok(())
    })
}
