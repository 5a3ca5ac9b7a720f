//! Choices made from the bytes of an input, so that a fuzzer which changes bytes changes choices.

/// The rest of an input. At its end, every choice is the first one.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// From 0 up to `end`, which is not included.
    pub fn below(&mut self, end: usize) -> usize {
        let number = u16::from_le_bytes([self.byte(), if end > 256 { self.byte() } else { 0 }]);
        usize::from(number) % end.max(1)
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// The byte that comes next.
    pub fn peek(&self) -> u8 {
        self.0.first().copied().unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rest as text.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(std::mem::take(&mut self.0)).into_owned()
    }
}
