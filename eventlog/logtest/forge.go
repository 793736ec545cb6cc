package logtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment"
	"stele.dev/stele/eventlog/segment/segmentpb"
)

// Forge changes the metadata of an event in the .log file of a segment, as whoever can write to the file does: all checksums and hashes
// in the file are right afterwards. The event is in the last batch before a gap, which nothing continues. is has the length of was.
func Forge(t testing.TB, file string, was, is string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := newForgery(t, file, []byte(was), []byte(is))
	if err := os.WriteFile(file, f.rewrite(text), 0o600); err != nil {
		t.Fatal(err)
	}
	forged, err := segment.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := segment.Sum(file)
	if err != nil {
		t.Fatal(err)
	}
	forged.SetSum(sum)
	if err := forged.Verify(t.Context()); err != nil {
		t.Fatalf("the forged segment is not right in itself: %v", err)
	}
}

// forgery is what a forged segment has in place of what it had.
type forgery struct {
	t       testing.TB
	was, is [][]byte // the text, and the hash of its batch
	tree    *compact.Range
}

// newForgery finds the batch, and computes the hashes of the forged segment.
func newForgery(t testing.TB, file string, was, is []byte) *forgery {
	t.Helper()
	from, err := segment.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, ranges := from.Info(), compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	f := &forgery{t: t, was: [][]byte{was}, is: [][]byte{is}, tree: ranges.NewEmptyRange(info.Ordinal)}
	for step, err := range from.Verbatim(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if step.Gap != nil {
			gap, err := ranges.NewRange(f.tree.End(), f.tree.End()+step.Gap.Batches, step.Gap.Tree)
			if err == nil {
				err = f.tree.AppendRange(gap, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		hash := step.Parts.Hash
		if forged := f.batch(step.Parts); forged != hash {
			f.was, f.is, hash = append(f.was, slices.Clone(hash[:])), append(f.is, forged[:]), forged
		}
		if err := f.tree.Append(segment.LeafHash(hash), nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.was) != 2 {
		t.Fatalf("%s: %q is in %d batches", file, was, len(f.was)-1)
	}
	return f
}

// batch returns the hash of a batch with the forged text.
func (f *forgery) batch(p *eventlog.Parts) eventlog.Hash {
	entries := slices.Clone(p.Entries)
	for i := range entries {
		entries[i].Metadata = bytes.ReplaceAll(entries[i].Metadata, f.was[0], f.is[0])
	}
	forged, err := eventlog.Join(p.First, p.Header, entries)
	if err != nil {
		f.t.Fatal(err)
	}
	return forged.Hash
}

func (f *forgery) replace(b []byte) []byte {
	for i := range f.was {
		b = bytes.ReplaceAll(b, f.was[i], f.is[i])
	}
	return b
}

// rewrite returns the forged file.
func (f *forgery) rewrite(text []byte) []byte {
	const magic, trailer = 8, 24
	end := text[len(text)-trailer:]
	infoAt := len(text) - trailer - int(binary.LittleEndian.Uint32(end[4:]))
	indexAt := infoAt - int(binary.LittleEndian.Uint32(end))
	index, info := new(segmentpb.LogIndex), new(segmentpb.Info)
	f.must(proto.Unmarshal(f.replace(text[indexAt:infoAt]), index))
	f.must(proto.Unmarshal(f.replace(text[infoAt:len(text)-trailer]), info))
	decoder, err := zstd.NewReader(nil)
	f.must(err)
	encoder, err := zstd.NewWriter(nil)
	f.must(err)
	table := crc32.MakeTable(crc32.Castagnoli)
	out, at := slices.Clone(text[:magic]), magic
	for i, length := range index.GetLength() {
		plain, err := decoder.DecodeAll(text[at:at+int(length)], nil)
		f.must(err)
		at += int(length)
		block := encoder.EncodeAll(f.replace(plain), nil)
		index.Length[i], index.Crc[i] = uint32(len(block)), crc32.Checksum(block, table)
		out = append(out, block...)
	}
	info.Tree = f.tree.Hashes()
	indexText, err := proto.Marshal(index)
	f.must(err)
	infoText, err := proto.Marshal(info)
	f.must(err)
	out = append(append(out, indexText...), infoText...)
	for _, n := range []uint32{uint32(len(indexText)), uint32(len(infoText)), crc32.Checksum(indexText, table), crc32.Checksum(infoText, table)} {
		out = binary.LittleEndian.AppendUint32(out, n)
	}
	return append(out, text[:magic]...)
}

func (f *forgery) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(fmt.Errorf("forge: %w", err))
	}
}
