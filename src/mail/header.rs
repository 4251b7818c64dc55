//! Header fields of a block: found, unfolded, decoded for display; never failing on any bytes.

/// One field as it stands in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// As written, without the colon.
    pub name: &'a [u8],
    /// All behind the colon up to the final line end, folds included.
    pub value: &'a [u8],
    /// The whole field with its line end, for cutting it out.
    pub whole: &'a [u8],
}

/// The fields in order; lines that are no field are passed over.
pub fn fields(block: &[u8]) -> Vec<Field<'_>> {
    let _ = block;
    unimplemented!()
}

/// The first field of that name in any case: unfolded, trimmed, bytes that are not UTF-8 replaced, NUL removed, with
/// encoded words (RFC 2047, UTF-8, US-ASCII and ISO-8859-1) decoded. None when there is none.
pub fn text(block: &[u8], name: &str) -> Option<String> {
    let _ = (block, name);
    unimplemented!()
}
