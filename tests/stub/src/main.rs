//! Without SYCL a call returns the error that says so; it does not crash, and nothing is missing at start.

fn main() {
    let answer = usmq::devices();
    assert!(matches!(answer, Err(usmq::Error::RuntimeNotFound(_))), "got {answer:?}");
    println!("stub: ok");
}
