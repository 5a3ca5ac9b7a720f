//! Interop: values of the host in place, a DLPack tensor out and in, a column of Arrow.

use usmq::interop::arrow::Column;
use usmq::interop::dlpack::{
    DLManagedTensorVersioned, Export, ExportedTensor, ForeignTensor, Import, export, import,
};
use usmq::{Array, MemoryKind, Queue};

pub(crate) fn main() -> usmq::Result<()> {
    let queue = Queue::get("cpu")?;

    // A CPU device uses memory of the host in place.
    let host = Array::from_owner(vec![1f32, 2.0, 3.0], &queue)?;
    assert_eq!(host.memory_kind(), MemoryKind::System);

    // Another library gets the pointer of the exported tensor. Here usmq itself takes it back, at the same address.
    let x = Array::full((2, 2), 7i32)?;
    let exported: ExportedTensor<DLManagedTensorVersioned> = export(&x, Export::default())?;
    // SAFETY: the tensor of `export`, which no other code has.
    let tensor = unsafe { ForeignTensor::from_raw(exported.into_raw()) }?;
    let again = import(tensor, Import::default())?;
    assert_eq!((again.address(), again.shape()), (x.address(), x.shape()));
    println!("DLPack: {again}");

    // A column has the memory of the array, without a copy.
    let column = Column::from_array("numbers", &x.reshape(4)?)?;
    let device = column.export_device(usmq::interop::arrow::SyncMode::Event)?;
    println!("Arrow: {} values, device type {}", column.len(), device.device_type());
    Ok(())
}
