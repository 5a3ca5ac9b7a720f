//! Without SYCL a call returns a clear error; the program starts and does not crash.

fn main() {
    let answer = usmq::devices();
    assert!(matches!(answer, Err(usmq::Error::RuntimeNotFound { .. })), "got {answer:?}");
    println!("stub: ok");
}
