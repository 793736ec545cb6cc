package filelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// A record is, with integers big-endian:
//
//	magic     4 bytes
//	length    4 bytes: of what follows the checksum
//	checksum  4 bytes: CRC-32C of the length and of what follows the checksum
//	first     8 bytes: revision of the batch
//	head      2 bytes for its length, and the head after the batch
//	value     the batch
const (
	prefixSize = 12
	fixedSize  = prefixSize + 10
)

var (
	magic      = []byte("SLR\x01")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func encode(first uint64, head, value []byte) []byte {
	b := make([]byte, 0, fixedSize+len(head)+len(value))
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, uint32(10+len(head)+len(value)))
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, first)
	b = binary.BigEndian.AppendUint16(b, uint16(len(head)))
	b = append(b, head...)
	b = append(b, value...)
	binary.BigEndian.PutUint32(b[8:], checksum(b))
	return b
}

func checksum(record []byte) uint32 {
	return crc32.Update(crc32.Checksum(record[4:8], castagnoli), castagnoli, record[prefixSize:])
}

// decode decodes a whole record. The results are parts of it.
func decode(record []byte) (first uint64, head, value []byte, err error) {
	switch {
	case len(record) < fixedSize || !bytes.Equal(record[:4], magic):
		return 0, nil, nil, errors.New("no record begins here")
	case int(binary.BigEndian.Uint32(record[4:])) != len(record)-prefixSize:
		return 0, nil, nil, errors.New("the length of the record is wrong")
	case binary.BigEndian.Uint32(record[8:]) != checksum(record):
		return 0, nil, nil, errors.New("the checksum of the record is wrong")
	}
	body := record[prefixSize:]
	n := int(binary.BigEndian.Uint16(body[8:]))
	if n > len(body)-10 {
		return 0, nil, nil, errors.New("the length of the head is wrong")
	}
	return binary.BigEndian.Uint64(body), body[10 : 10+n], body[10+n:], nil
}

// scanned is what a file has.
type scanned struct {
	records []record
	head    []byte // after the last record
	end     int64  // of the last good record
	// damage is set if what follows end cannot be what a crash has left of one append.
	damage *DamagedError
}

// scan reads a whole file.
func scan(name string) (s scanned, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return s, err
	}
	previous := uint64(0)
	for rest := text; len(rest) > 0; rest = text[s.end:] {
		size, first, head, err := nextRecord(rest)
		if err == nil && first <= previous {
			err = fmt.Errorf("revision %d follows revision %d", first, previous)
		}
		if err != nil {
			if follows(rest, previous) {
				s.damage = &DamagedError{name, s.end, err.Error()}
			}
			return s, nil
		}
		s.records = append(s.records, record{first, s.end, size})
		s.head, previous = head, first
		s.end += size
	}
	return s, nil
}

// nextRecord decodes the record at the beginning of a text.
func nextRecord(text []byte) (size int64, first uint64, head []byte, err error) {
	if len(text) < fixedSize {
		return 0, 0, nil, errors.New("the record is not complete")
	}
	size = prefixSize + int64(binary.BigEndian.Uint32(text[4:]))
	if !bytes.Equal(text[:4], magic) || size < fixedSize {
		return 0, 0, nil, errors.New("no record begins here")
	}
	if size > int64(len(text)) {
		return 0, 0, nil, errors.New("the record is not complete")
	}
	first, head, _, err = decode(text[:size])
	return size, first, bytes.Clone(head), err
}

// follows reports whether a good record with a later revision is somewhere behind the beginning of a text. A crash leaves
// at most one record that is not good, so there is none behind it.
func follows(text []byte, previous uint64) bool {
	for at := 1; ; at++ {
		i := bytes.Index(text[min(at, len(text)):], magic)
		if i < 0 {
			return false
		}
		at += i
		if _, first, _, err := nextRecord(text[at:]); err == nil && first > previous {
			return true
		}
	}
}

// readRecord reads and checks one record of a file.
func readRecord(f io.ReaderAt, name string, r record) (head, value []byte, err error) {
	text := make([]byte, r.size)
	if _, err := f.ReadAt(text, r.offset); err != nil {
		if errors.Is(err, io.EOF) {
			err = &DamagedError{name, r.offset, "the file ends within the record"}
		}
		return nil, nil, err
	}
	first, head, value, err := decode(text)
	if err == nil && first != r.first {
		err = fmt.Errorf("the record is of revision %d, not %d", first, r.first)
	}
	if err != nil {
		return nil, nil, &DamagedError{name, r.offset, err.Error()}
	}
	return head, value, nil
}
