package segment

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"
	"google.golang.org/protobuf/proto"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/segment/segmentpb"
)

// Format is the format level of the files that this version writes, and the highest that it reads.
const Format = 1

// Info says what a segment holds. It is immutable.
type Info struct {
	Log        eventlog.ID
	Epoch      uint64        // of the last batch
	First      uint64        // first revision
	Last       uint64        // last revision
	Generation uint32        // how often the segment was rewritten
	Before     eventlog.Head // position before its first batch
	After      eventlog.Head // position after its last batch
	// Kept is the position before the first batch that is still there; After if there is none.
	Kept eventlog.Head
	// FirstTime and LastTime are the log times of the first and the last batch.
	FirstTime, LastTime time.Time

	// These count also what is not kept any more.
	Batches, Events, Revisions uint64
	Plain                      int64 // bytes of the events before compression
	// KeptBatches and KeptEvents count what is still there.
	KeptBatches, KeptEvents uint64

	// Ordinal is the number of batches before the segment in the log.
	Ordinal uint64
	// Tree has the hashes of the compact range of its batches, from Ordinal to Ordinal+Batches.
	Tree [][]byte

	Epochs    []Epoch            // that begin in the segment
	ClockSets eventlog.ClockSets // in the segment
	// Groups are the kinds of its events, sorted by group and resource.
	Groups []Group
	// Files are the .log file and the .payloads file.
	Files [2]File
}

// File describes one file of a segment.
type File struct {
	Name   string // without a folder
	Size   int64  // bytes
	SHA256 [32]byte
}

// Epoch is a gap in the revisions after a restore: those from LostFrom to Next-1 were lost.
type Epoch struct{ LostFrom, Next uint64 }

// Group sums up what a segment keeps of one kind of object. Events without an object have empty names.
type Group struct {
	Group, Resource string
	Events          uint64 // that are kept
	Metadata        int64  // bytes of their metadata before compression
	Payloads        uint64 // that are kept
	Plain           int64  // bytes of these before compression
	Stored          int64  // bytes of their blocks in the .payloads file
}

// Gap stands for consecutive batches of a segment that are not kept any more.
type Gap struct {
	Before, After       eventlog.Head
	First               uint64 // first revision
	Batches, Events     uint64
	Tree                [][]byte // hashes of their compact range
	FirstTime, LastTime time.Time
}

// Size returns the number of bytes of both files.
func (i *Info) Size() int64 { return i.Files[0].Size + i.Files[1].Size }

// Extensions of the two files.
const (
	LogFile      = ".log"
	PayloadsFile = ".payloads"
)

// Name returns the name of a segment's files, without the extension.
func Name(first, last uint64, generation uint32) string {
	name := fmt.Sprintf("%020d-%020d", first, last)
	if generation > 0 {
		name += fmt.Sprintf("-g%d", generation)
	}
	return name
}

var namePattern = regexp.MustCompile(`^(\d{20})-(\d{20})(?:-g([1-9]\d{0,8}))?$`)

// ParseName returns what [Name] was called with. ok is false if it cannot have returned this name.
func ParseName(name string) (first, last uint64, generation uint32, ok bool) {
	m := namePattern.FindStringSubmatch(name)
	if m == nil {
		return 0, 0, 0, false
	}
	first, err1 := strconv.ParseUint(m[1], 10, 64)
	last, err2 := strconv.ParseUint(m[2], 10, 64)
	g, _ := strconv.ParseUint(m[3], 10, 32) // the pattern bounds it; empty is 0
	return first, last, uint32(g), err1 == nil && err2 == nil && first <= last
}

// NameOf returns the name of a segment, without extension and folder, given the path of one of its files.
func NameOf(path string) string {
	name := filepath.Base(path)
	for _, extension := range []string{LogFile, PayloadsFile} {
		if cut, ok := strings.CutSuffix(name, extension); ok {
			return cut
		}
	}
	return name
}

// ranges makes the compact ranges of the tree over the hashes of batches.
var ranges = &compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// LeafHash returns the leaf of a batch in the tree over all batches of a log.
func LeafHash(batch eventlog.Hash) []byte { return rfc6962.DefaultHasher.HashLeaf(batch[:]) }

// Roots returns the roots of the trees that end with a segment, by their sizes. The segments are those of a log in order. It
// stops at the first one that does not continue the one before, as behind one that is damaged.
func Roots(infos []Info) map[uint64]eventlog.Hash {
	tree, roots := ranges.NewEmptyRange(0), map[uint64]eventlog.Hash{}
	for i := range infos {
		is := &infos[i]
		if is.Ordinal != tree.End() || i > 0 && infos[i-1].After != is.Before {
			break
		}
		of, err := ranges.NewRange(is.Ordinal, is.Ordinal+is.Batches, is.Tree)
		must(err) // [Info.check] has made it
		must(tree.AppendRange(of, nil))
		root, err := tree.GetRootHash(nil)
		must(err)
		roots[tree.End()] = eventlog.Hash(root)
	}
	return roots
}

// Gaps reports whether batches of a segment are not kept any more.
func (i *Info) Gaps() bool { return i.KeptBatches < i.Batches }

func must(err error) {
	if err != nil {
		panic("segment: " + err.Error())
	}
}

func position(h eventlog.Head) *segmentpb.Position {
	return &segmentpb.Position{Epoch: h.Epoch, Revision: h.Revision, Hash: h.Hash[:]}
}

// head returns the Head of a position. It fails if the hash has the wrong length.
func head(log eventlog.ID, p *segmentpb.Position) (eventlog.Head, error) {
	if len(p.GetHash()) != len(eventlog.Hash{}) {
		return eventlog.Head{}, fmt.Errorf("a position has a hash of %d bytes", len(p.GetHash()))
	}
	return eventlog.Head{Log: log, Epoch: p.GetEpoch(), Revision: p.GetRevision(), Hash: eventlog.Hash(p.GetHash())}, nil
}

// encode returns the info as a segmentpb.Info. Files are in it as far as the .payloads file.
func (i *Info) encode() []byte {
	pb := &segmentpb.Info{
		Format: Format, Log: i.Log[:], First: i.First, Generation: i.Generation,
		Before: position(i.Before), After: position(i.After), Kept: position(i.Kept),
		FirstUnixNano: i.FirstTime.UnixNano(), LastUnixNano: i.LastTime.UnixNano(),
		Batches: i.Batches, Events: i.Events, Revisions: i.Revisions, Plain: uint64(i.Plain),
		KeptBatches: i.KeptBatches, KeptEvents: i.KeptEvents, Ordinal: i.Ordinal, Tree: i.Tree,
		PayloadsSize: uint64(i.Files[1].Size), PayloadsSha256: i.Files[1].SHA256[:],
	}
	for _, e := range i.Epochs {
		pb.Epochs = append(pb.Epochs, &segmentpb.Epoch{LostFrom: e.LostFrom, Next: e.Next})
	}
	for _, c := range i.ClockSets {
		pb.ClockSets = append(pb.ClockSets, &segmentpb.ClockSet{Revision: c.Revision, UnixNano: c.Time.UnixNano()})
	}
	for _, g := range i.Groups {
		pb.Groups = append(pb.Groups, &segmentpb.Group{
			Group: g.Group, Resource: g.Resource, Payloads: g.Payloads, Plain: uint64(g.Plain), Stored: uint64(g.Stored),
			Events: g.Events, Metadata: uint64(g.Metadata),
		})
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(pb)
	must(err)
	return encoded
}

// decodeInfo decodes what encode returned. The names of the files, and size and hash of the .log file, are missing.
func decodeInfo(encoded []byte) (*Info, error) {
	pb := new(segmentpb.Info)
	if err := proto.Unmarshal(encoded, pb); err != nil {
		return nil, err
	}
	if pb.GetFormat() == 0 || pb.GetFormat() > Format {
		return nil, fmt.Errorf("format level %d, this version reads up to %d", pb.GetFormat(), Format)
	}
	if len(pb.GetLog()) != len(eventlog.ID{}) || len(pb.GetPayloadsSha256()) != 32 {
		return nil, fmt.Errorf("an id or hash has the wrong length")
	}
	log := eventlog.ID(pb.GetLog())
	before, err1 := head(log, pb.GetBefore())
	after, err2 := head(log, pb.GetAfter())
	kept, err3 := head(log, pb.GetKept())
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, err
		}
	}
	i := &Info{
		Log: log, Epoch: after.Epoch, First: pb.GetFirst(), Last: after.Revision, Generation: pb.GetGeneration(),
		Before: before, After: after, Kept: kept,
		FirstTime: time.Unix(0, pb.GetFirstUnixNano()).UTC(), LastTime: time.Unix(0, pb.GetLastUnixNano()).UTC(),
		Batches: pb.GetBatches(), Events: pb.GetEvents(), Revisions: pb.GetRevisions(), Plain: int64(pb.GetPlain()),
		KeptBatches: pb.GetKeptBatches(), KeptEvents: pb.GetKeptEvents(), Ordinal: pb.GetOrdinal(), Tree: pb.GetTree(),
	}
	i.Files[1].Size, i.Files[1].SHA256 = int64(pb.GetPayloadsSize()), [32]byte(pb.GetPayloadsSha256())
	for _, e := range pb.GetEpochs() {
		i.Epochs = append(i.Epochs, Epoch{e.GetLostFrom(), e.GetNext()})
	}
	for _, c := range pb.GetClockSets() {
		i.ClockSets = append(i.ClockSets, eventlog.ClockSet{Revision: c.GetRevision(), Time: time.Unix(0, c.GetUnixNano()).UTC()})
	}
	for _, g := range pb.GetGroups() {
		i.Groups = append(i.Groups, Group{
			Group: g.GetGroup(), Resource: g.GetResource(), Payloads: g.GetPayloads(), Plain: int64(g.GetPlain()),
			Stored: int64(g.GetStored()), Events: g.GetEvents(), Metadata: int64(g.GetMetadata()),
		})
	}
	return i, i.check()
}

// check reports contradictions within the info.
func (i *Info) check() error {
	switch {
	case i.First <= i.Before.Revision || i.First > i.Last || i.Batches == 0 || i.Events < i.Batches:
		return fmt.Errorf("it holds %d batches from revision %d to %d, after %d", i.Batches, i.First, i.Last, i.Before.Revision)
	case i.Kept.Revision < i.Before.Revision || i.Kept.Revision > i.Last:
		return fmt.Errorf("it keeps what follows revision %d, and ends at %d", i.Kept.Revision, i.Last)
	case i.Ordinal+i.Batches < i.Ordinal:
		return fmt.Errorf("%d batches after %d", i.Batches, i.Ordinal)
	case slices.ContainsFunc(i.Tree, func(h []byte) bool { return len(h) != 32 }):
		return fmt.Errorf("a hash of the tree has the wrong length")
	}
	_, err := ranges.NewRange(i.Ordinal, i.Ordinal+i.Batches, i.Tree)
	return err
}

// encode returns the gap as a segmentpb.Gap.
func (g *Gap) encode() []byte {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(&segmentpb.Gap{
		Before: position(g.Before), After: position(g.After), First: g.First, Batches: g.Batches, Events: g.Events, Tree: g.Tree,
		FirstUnixNano: g.FirstTime.UnixNano(), LastUnixNano: g.LastTime.UnixNano(),
	})
	must(err)
	return encoded
}

func decodeGap(log eventlog.ID, encoded []byte) (*Gap, error) {
	pb := new(segmentpb.Gap)
	if err := proto.Unmarshal(encoded, pb); err != nil {
		return nil, err
	}
	before, err := head(log, pb.GetBefore())
	if err != nil {
		return nil, err
	}
	after, err := head(log, pb.GetAfter())
	if err != nil {
		return nil, err
	}
	g := &Gap{
		Before: before, After: after, First: pb.GetFirst(), Batches: pb.GetBatches(), Events: pb.GetEvents(), Tree: pb.GetTree(),
		FirstTime: time.Unix(0, pb.GetFirstUnixNano()).UTC(), LastTime: time.Unix(0, pb.GetLastUnixNano()).UTC(),
	}
	if g.First <= before.Revision || g.First > after.Revision || g.Batches == 0 {
		return nil, fmt.Errorf("a gap from revision %d to %d, after %d", g.First, after.Revision, before.Revision)
	}
	return g, nil
}

// Last returns the last revision of the gap; 0 if it is nil.
func (g *Gap) Last() uint64 {
	if g == nil {
		return 0
	}
	return g.After.Revision
}
