package segment

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// The frame that both files have, see the package comment.
const (
	logMagic      = "STELE-L1"
	payloadsMagic = "STELE-P1"
	trailerSize   = 24

	// blockBytes is the size before compression at which a block is complete.
	blockBytes = 128 << 10
	// maxBlock bounds the size of a block before compression, whatever an index says: a batch has at most 64 MiB of
	// events.
	maxBlock = 128 << 20
	// maxFooter bounds the sizes of index and info.
	maxFooter = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encoder and decoder are safe for concurrent use by EncodeAll and DecodeAll. They are made at package initialization,
// because a testing/synctest bubble that made them would own their channels.
var encoder, decoder = newEncoder(), newDecoder()

// window is how far back the encoder looks: more than a usual block. The encoder keeps a buffer of twice that, for as long as
// the program runs.
const window = 512 << 10

func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithEncoderCRC(false))
	must(err)
	e.EncodeAll(nil, nil)
	return e
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxBlock), zstd.WithDecoderLowmem(true))
	must(err)
	return d
}

// DamagedError reports a file of a segment that is not what was written, or that cannot be read. The batches in it can
// come from a backup; the log in etcd has them if they are recent.
type DamagedError struct {
	File   string // path
	Reason string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("segment: %s is damaged: %s; restore it from a backup, or move it away to go on without its revisions", e.File, e.Reason)
}

// damaged makes a DamagedError of an error. Errors of the file system stay what they are.
func damaged(file string, err error) error {
	var known *DamagedError
	var path *os.PathError
	if err == nil || errors.As(err, &known) || errors.As(err, &path) {
		return err
	}
	return &DamagedError{file, err.Error()}
}

// frameWriter writes one file.
type frameWriter struct {
	w     io.Writer
	magic string
	sum   hash.Hash
	size  int64
	err   error // the first one; nothing is written after it
	buf   []byte
}

func newFrameWriter(w io.Writer, magic string) *frameWriter {
	f := &frameWriter{w: w, magic: magic, sum: sha256.New()}
	f.write([]byte(magic))
	return f
}

func (f *frameWriter) write(b []byte) {
	if f.err != nil {
		return
	}
	if _, f.err = f.w.Write(b); f.err == nil {
		f.sum.Write(b)
		f.size += int64(len(b))
	}
}

// block compresses and writes a block, and returns its length in the file and its CRC.
func (f *frameWriter) block(plain []byte) (length, crc uint32) {
	f.buf = encoder.EncodeAll(plain, f.buf[:0])
	f.write(f.buf)
	return uint32(len(f.buf)), crc32.Checksum(f.buf, castagnoli)
}

// finish writes the footer, and describes the file.
func (f *frameWriter) finish(index, info []byte) (File, error) {
	f.write(index)
	f.write(info)
	trailer := make([]byte, 0, trailerSize)
	trailer = binary.LittleEndian.AppendUint32(trailer, uint32(len(index)))
	trailer = binary.LittleEndian.AppendUint32(trailer, uint32(len(info)))
	trailer = binary.LittleEndian.AppendUint32(trailer, crc32.Checksum(index, castagnoli))
	trailer = binary.LittleEndian.AppendUint32(trailer, crc32.Checksum(info, castagnoli))
	f.write(append(trailer, f.magic...))
	return File{Size: f.size, SHA256: [32]byte(f.sum.Sum(nil))}, f.err
}

// footer says where index and info of a file are.
type footer struct {
	blocks              int64 // end of the blocks
	indexSize, infoSize int64
	indexCRC, infoCRC   uint32
}

// readFooter reads the trailer of a file of some size.
func readFooter(r io.ReaderAt, size int64, magic string) (footer, error) {
	if size < int64(len(magic))+trailerSize {
		return footer{}, fmt.Errorf("it has only %d bytes", size)
	}
	start := make([]byte, len(magic))
	if _, err := r.ReadAt(start, 0); err != nil {
		return footer{}, err
	}
	if string(start) != magic {
		return footer{}, fmt.Errorf("it begins with %q, not with %q", start, magic)
	}
	t := make([]byte, trailerSize)
	if _, err := r.ReadAt(t, size-trailerSize); err != nil {
		return footer{}, err
	}
	if string(t[16:]) != magic {
		return footer{}, errors.New("its end is missing")
	}
	f := footer{
		indexSize: int64(binary.LittleEndian.Uint32(t)), infoSize: int64(binary.LittleEndian.Uint32(t[4:])),
		indexCRC: binary.LittleEndian.Uint32(t[8:]), infoCRC: binary.LittleEndian.Uint32(t[12:]),
	}
	f.blocks = size - trailerSize - f.indexSize - f.infoSize
	if f.indexSize > maxFooter || f.infoSize > maxFooter || f.blocks < int64(len(magic)) {
		return footer{}, fmt.Errorf("its footer of %d bytes is larger than it may be", f.indexSize+f.infoSize)
	}
	return f, nil
}

func (f *footer) readIndex(r io.ReaderAt) ([]byte, error) {
	return readChecked(r, f.blocks, f.indexSize, f.indexCRC, "index")
}

func (f *footer) readInfo(r io.ReaderAt) ([]byte, error) {
	return readChecked(r, f.blocks+f.indexSize, f.infoSize, f.infoCRC, "info")
}

// readChecked reads bytes and compares their CRC.
func readChecked(r io.ReaderAt, at, size int64, crc uint32, what string) ([]byte, error) {
	b := make([]byte, size)
	if _, err := r.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("the %s at byte %d: %w", what, at, err)
	}
	if crc32.Checksum(b, castagnoli) != crc {
		return nil, fmt.Errorf("the %s at byte %d has a wrong checksum", what, at)
	}
	return b, nil
}

// blockAt says where a block is.
type blockAt struct {
	offset        int64
	length, plain uint32
	crc           uint32
}

// read reads and decompresses the block.
func (b *blockAt) read(r io.ReaderAt) ([]byte, error) {
	compressed, err := readChecked(r, b.offset, int64(b.length), b.crc, "block")
	if err != nil {
		return nil, err
	}
	plain, err := decoder.DecodeAll(compressed, make([]byte, 0, b.plain))
	if err != nil {
		return nil, fmt.Errorf("the block at byte %d: %w", b.offset, err)
	}
	if len(plain) != int(b.plain) {
		return nil, fmt.Errorf("the block at byte %d has %d bytes, the index says %d", b.offset, len(plain), b.plain)
	}
	return plain, nil
}

// blocksAt places blocks one after another, from the magic on. They must end where the index begins.
func blocksAt(length, plain, crc []uint32, end int64) ([]blockAt, error) {
	if len(length) != len(plain) || len(length) != len(crc) {
		return nil, errors.New("the index has columns of different lengths")
	}
	blocks := make([]blockAt, len(length))
	offset := int64(len(logMagic))
	for i := range blocks {
		blocks[i] = blockAt{offset, length[i], plain[i], crc[i]}
		offset += int64(length[i])
		if plain[i] > maxBlock {
			return nil, fmt.Errorf("the index has a block of %d bytes, at most %d are read", plain[i], maxBlock)
		}
	}
	if offset != end {
		return nil, fmt.Errorf("the blocks of the index end at byte %d, and the file's at %d", offset, end)
	}
	return blocks, nil
}

// withFile opens a file for reading as long as f runs.
func withFile[T any](path string, f func(io.ReaderAt) (T, error)) (T, error) {
	file, err := os.Open(path)
	if err != nil {
		var zero T
		return zero, err
	}
	defer file.Close()
	v, err := f(file)
	return v, damaged(filepath.Clean(path), err)
}
