//! Checks that every id of a SPIR-V module is below the bound in its header. Pure.
//!
//! Drivers use ids as array indices without a check.

use rspirv::binary::{Consumer, ParseAction, ParseState, Parser};
use rspirv::dr::{Instruction, ModuleHeader};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Source: the SPIR-V specification, section 2.17 (universal limits).
const MOST_IDS: u32 = 4_194_303;

/// Why an id of this module, in little-endian words and with valid word counts, is invalid. Instructions that
/// the parser does not know, such as those of new extensions, end the check; the driver validates them.
pub(super) fn refuse_ids(module: &[u8]) -> Result<(), String> {
    let mut ids = Ids { bound: 0, wrong: None };
    // The parser calls `expect` on values that a malformed module can contain.
    let parsed = catch_unwind(AssertUnwindSafe(|| Parser::new(module, &mut ids).parse()));
    if let Some(wrong) = ids.wrong {
        return Err(wrong);
    }
    match parsed {
        Err(_) => Err("an instruction of the module uses an id of the wrong kind for its operand".to_owned()),
        Ok(Err(ParseState::OperandExpected(byte, _) | ParseState::OperandExceeded(byte, _))) => Err(format!(
            "an instruction before byte {byte} of the module has more or fewer operands than SPIR-V defines"
        )),
        Ok(_) => Ok(()),
    }
}

struct Ids {
    bound: u32,
    wrong: Option<String>,
}

impl Consumer for Ids {
    fn initialize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn finalize(&mut self) -> ParseAction {
        ParseAction::Continue
    }

    fn consume_header(&mut self, header: ModuleHeader) -> ParseAction {
        self.bound = header.bound;
        if (1..=MOST_IDS + 1).contains(&header.bound) {
            return ParseAction::Continue;
        }
        self.wrong = Some(format!(
            "the header of the module gives {} as the bound of its ids; SPIR-V allows 1 to {}",
            header.bound,
            MOST_IDS + 1
        ));
        ParseAction::Stop
    }

    fn consume_instruction(&mut self, instruction: Instruction) -> ParseAction {
        let operands = instruction.operands.iter().filter_map(|operand| operand.id_ref_any());
        let ids = instruction.result_type.into_iter().chain(instruction.result_id).chain(operands);
        let Some(id) = ids.into_iter().find(|id| *id == 0 || *id >= self.bound) else {
            return ParseAction::Continue;
        };
        self.wrong = Some(format!(
            "Op{} of the module uses the id {id}, but the header allows ids from 1 to {}",
            instruction.class.opname,
            self.bound - 1
        ));
        ParseAction::Stop
    }
}
