//! Writes the buffer of C's stdout, into which drivers print.

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    fn ftrylockfile(file: *mut libc::FILE) -> libc::c_int;
    fn funlockfile(file: *mut libc::FILE);
}

/// Writes the buffer; an error of the write stays in the stream, as for every output of C. Without `may_block` it writes
/// only if no other thread does, and if the reader has room. Returns whether it has written.
pub(crate) fn write_stdout(may_block: bool) -> bool {
    // SAFETY: the C library sets this variable before the first code of the program runs; usmq only reads it.
    let file = unsafe { stdout };
    if file.is_null() {
        return true;
    }
    if may_block {
        // SAFETY: stdout is open, as the driver prints into it.
        unsafe { libc::fflush(file) };
        return true;
    }
    // SAFETY: as above.
    if unsafe { ftrylockfile(file) } != 0 {
        return false;
    }
    // SAFETY: as above.
    let mut room = libc::pollfd { fd: unsafe { libc::fileno(file) }, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry, which lives during the call; returns at once.
    let has_room = unsafe { libc::poll(&raw mut room, 1, 0) } == 1;
    if has_room {
        // SAFETY: as above; the lock of a stream is recursive.
        unsafe { libc::fflush(file) };
    }
    // SAFETY: this thread has locked it.
    unsafe { funlockfile(file) };
    has_room
}
