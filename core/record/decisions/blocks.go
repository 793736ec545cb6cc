package decisions

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Users and rules are found by blocks: a block says which users and rules the decisions of a span of revisions have, so that a
// search leaves out the spans that have none of them. Blocks are in memory, a few hundred bytes for about 1,024 decisions, and
// in files beside those of audit IDs. A span without a block, for example because its file is damaged, is read.
const (
	// perBlock is how many events a block is about, or a few more.
	perBlock = 1024
	// maxKeys is how many users and rules a block tells apart. A block with more is never left out.
	maxKeys = 512
)

// block has the users and rules of the decisions of the revisions from..to.
type block struct {
	from, to uint64
	keys     []uint32 // ascending hashes
	events   int
	any      bool // it is never left out: it has too many keys, or a gap, of which every search is told
}

// Sought is what a search requires of decisions; "" for anything.
type Sought struct{ User, Rule string }

func (s Sought) keys() (keys []uint32) {
	if s.User != "" {
		keys = append(keys, keyOf('u', s.User))
	}
	if s.Rule != "" {
		keys = append(keys, keyOf('r', s.Rule))
	}
	return keys
}

func keyOf(kind byte, text string) uint32 { return uint32(hashOf(string(kind) + text)) }

// add adds the events of a batch.
func (b *block) add(batch *eventlog.Batch) {
	if b.events == 0 {
		b.from = batch.First
	}
	b.to = batch.Last()
	b.events += max(1, len(batch.Events))
	for _, e := range batch.Events {
		m := e.Meta
		if m.GetType() == logpb.Type_TYPE_DECISIONS_LOST {
			b.any = true
		}
		b.note('u', m.GetActor().GetUser())
		for _, rule := range []string{m.GetDecision().GetRule(), m.GetDecisions().GetRule(), m.GetDecisionsCounted().GetLike().GetRule()} {
			b.note('r', rule)
		}
	}
}

func (b *block) note(kind byte, text string) {
	if text == "" || b.any {
		return
	}
	key := keyOf(kind, text)
	i, found := slices.BinarySearch(b.keys, key)
	if found {
		return
	}
	if b.keys = slices.Insert(b.keys, i, key); len(b.keys) > maxKeys {
		b.any, b.keys = true, nil
	}
}

// lacks reports whether no decision of the block has one of the keys.
func (b *block) lacks(keys []uint32) bool {
	return !b.any && slices.ContainsFunc(keys, func(key uint32) bool {
		_, found := slices.BinarySearch(b.keys, key)
		return !found
	})
}

// Back returns the revision from which on a search backwards goes on: that of the call, or an older one if the decisions between
// have nothing of what is sought. A Recorder that is nil leaves out nothing.
func (r *Recorder) Back(revision uint64, sought Sought) uint64 {
	keys := sought.keys()
	if r == nil || len(keys) == 0 {
		return revision
	}
	return r.index.skipBack(revision, keys)
}

func (x *index) skipBack(revision uint64, keys []uint32) uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	i, found := slices.BinarySearchFunc(x.blocks, revision, func(b block, revision uint64) int {
		switch {
		case b.to < revision:
			return -1
		case b.from > revision:
			return 1
		}
		return 0
	})
	for ; found && i >= 0 && x.blocks[i].to >= revision && x.blocks[i].from <= revision && x.blocks[i].lacks(keys); i-- {
		revision = x.blocks[i].from - 1
	}
	return revision
}

// addBlock adds a batch to the open block, and closes that if it is full. The caller holds mu.
func (x *index) addBlock(b *eventlog.Batch) {
	if x.open.add(b); x.open.events >= perBlock {
		x.blocks = append(x.blocks, x.open)
		x.open = block{}
	}
}

// blocksFile returns the name of the file of blocks beside a file of audit IDs.
func blocksFile(ids string) string { return strings.TrimSuffix(ids, ".ids") + ".blocks" }

// appendBlocks encodes blocks: for each its revisions, the number of its keys (the greatest one for a block that is never left
// out) and the keys; at the end a CRC-32C. Integers are big-endian.
func appendBlocks(text []byte, blocks []block) []byte {
	const any = 1<<32 - 1
	for i := range blocks {
		b := &blocks[i]
		text = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(text, b.from), b.to)
		if b.any {
			text = binary.BigEndian.AppendUint32(text, any)
			continue
		}
		text = binary.BigEndian.AppendUint32(text, uint32(len(b.keys)))
		for _, key := range b.keys {
			text = binary.BigEndian.AppendUint32(text, key)
		}
	}
	return binary.BigEndian.AppendUint32(text, crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
}

var errBlocks = errors.New("the blocks are damaged")

// parseBlocks decodes what appendBlocks has encoded.
func parseBlocks(text []byte) (blocks []block, err error) {
	end := len(text) - 4
	if end < 0 || crc32.Checksum(text[:end], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(text[end:]) {
		return nil, errBlocks
	}
	for text = text[:end]; len(text) > 0; {
		if len(text) < 20 {
			return nil, errBlocks
		}
		b := block{from: binary.BigEndian.Uint64(text), to: binary.BigEndian.Uint64(text[8:])}
		n := binary.BigEndian.Uint32(text[16:])
		if text = text[20:]; n > maxKeys {
			b.any, n = true, 0
		}
		if len(text) < int(n)*4 || b.to < b.from || len(blocks) > 0 && b.from <= blocks[len(blocks)-1].to {
			return nil, errBlocks
		}
		for i := range n {
			b.keys = append(b.keys, binary.BigEndian.Uint32(text[i*4:]))
		}
		blocks, text = append(blocks, b), text[n*4:]
	}
	return blocks, nil
}

// loadBlocks adds the blocks of a file that are about its revisions; none if the file is missing or damaged.
func (x *index) loadBlocks(f indexFile) {
	text, err := os.ReadFile(blocksFile(f.name))
	if err != nil {
		return
	}
	blocks, err := parseBlocks(text)
	if err != nil {
		return
	}
	for _, b := range blocks {
		if n := len(x.blocks); b.from >= f.from && b.to <= f.to && (n == 0 || b.from > x.blocks[n-1].to) {
			x.blocks = append(x.blocks, b)
		}
	}
}

// saveBlocks writes the blocks of the revisions of a file of audit IDs. One that ends behind them is written with none, so the
// next start reads its span.
func (x *index) saveBlocks(f indexFile) error {
	x.mu.Lock()
	var blocks []block
	for _, b := range x.blocks {
		if b.from >= f.from && b.to <= f.to {
			blocks = append(blocks, b)
		}
	}
	x.mu.Unlock()
	name := blocksFile(f.name)
	if err := os.WriteFile(name+".new", appendBlocks(nil, blocks), 0o600); err != nil {
		return errors.Join(err, os.Remove(name+".new"))
	}
	return os.Rename(name+".new", name)
}

// forgetBlocks forgets the blocks of revisions that are not kept any more. The caller holds mu.
func (x *index) forgetBlocks(oldest uint64) {
	n := 0
	for n < len(x.blocks) && x.blocks[n].to <= oldest {
		n++
	}
	x.blocks = slices.Clone(x.blocks[n:])
}

// replaces reports whether a file of the index holds the same first revision as f, and is not f or its blocks.
func (f indexFile) replaces(name string) bool {
	base := filepath.Base(name)
	return name != f.name && name != blocksFile(f.name) && strings.HasPrefix(base, fmt.Sprintf("%020d-", f.from))
}
