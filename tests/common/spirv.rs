//! A SPIR-V module, because the runtime has no compiler for SPIR-V.

/// `kernel void add(global uint *x, uint term) { x[get_global_id(0)] += term; }`, assembled by hand: the encoding of
/// the SPIR-V specification, section 2.3, with its numbers of instructions.
pub fn spirv() -> Vec<u8> {
    let [void, u32_, u64_, v3, to_v3, to_u32, function, gid, add, x, term, entry, id3, id, place, old, new] =
        std::array::from_fn(|number| number as u32 + 1);
    let name = [u32::from_le_bytes(*b"add\0")];
    let instructions: [(u32, &[u32]); 24] = [
        (17, &[4]),                            // OpCapability Addresses
        (17, &[6]),                            // OpCapability Kernel
        (17, &[11]),                           // OpCapability Int64
        (14, &[2, 2]),                         // OpMemoryModel Physical64 OpenCL
        (15, &[6, add, name[0], gid]),         // OpEntryPoint Kernel
        (71, &[gid, 11, 28]),                  // OpDecorate BuiltIn GlobalInvocationId
        (71, &[gid, 22]),                      // OpDecorate Constant
        (19, &[void]),                         // OpTypeVoid
        (21, &[u32_, 32, 0]),                  // OpTypeInt
        (21, &[u64_, 64, 0]),                  // OpTypeInt
        (23, &[v3, u64_, 3]),                  // OpTypeVector
        (32, &[to_v3, 1, v3]),                 // OpTypePointer Input
        (32, &[to_u32, 5, u32_]),              // OpTypePointer CrossWorkgroup
        (33, &[function, void, to_u32, u32_]), // OpTypeFunction
        (59, &[to_v3, gid, 1]),                // OpVariable Input
        (54, &[void, add, 0, function]),       // OpFunction
        (55, &[to_u32, x]),                    // OpFunctionParameter
        (55, &[u32_, term]),                   // OpFunctionParameter
        (248, &[entry]),                       // OpLabel
        (61, &[v3, id3, gid, 2, 32]),          // OpLoad Aligned 32
        (81, &[u64_, id, id3, 0]),             // OpCompositeExtract
        (70, &[to_u32, place, x, id]),         // OpInBoundsPtrAccessChain
        (61, &[u32_, old, place, 2, 4]),       // OpLoad Aligned 4
        (128, &[u32_, new, old, term]),        // OpIAdd
    ];
    let end: [(u32, &[u32]); 3] = [(62, &[place, new, 2, 4]), (253, &[]), (56, &[])]; // OpStore, OpReturn, the end
    let mut words = vec![0x0723_0203, 0x0001_0000, 0, new + 1, 0];
    for (code, operands) in instructions.into_iter().chain(end) {
        words.push((operands.len() as u32 + 1) << 16 | code);
        words.extend_from_slice(operands);
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}
