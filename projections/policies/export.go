package policies

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// FoldVersion is the version of the fold of this package and of the records of [State.Export]. It is raised whenever
// the same log gives another state, or the same state other records.
const FoldVersion = 1

// A state is exported as records of these kinds, each with its parts in this order. Numbers are varints, digests have
// 32 bytes, "bytes" are a length and as many bytes. Files are a number of files, and for each its path and size and the
// digests of its chunks.
const (
	// recordChunk has a flag whether a proposal may refer to the chunk, and the chunk as the rest of the record.
	recordChunk = 1 + iota
	// recordLocated has a digest and the revision of the chunk in the log.
	recordLocated
	// recordProposal has revision, digest, digest of the sources, compiler, language, package, commit, and the files,
	// with the form as the first one.
	recordProposal
	// recordActivation has a [Record]: digest, revision, revision of the proposal, commit and user.
	recordActivation
	// recordActive has the digest of the policy in force. It is missing before the first activation.
	recordActive
	// recordRendered has how long objects have been as they are, as the event of the last activation has it. It is missing if the
	// event does not have it.
	recordRendered
	// recordLayers has the revisions of all changes of the definitions that came through the API, in order. It is missing if there are none.
	recordLayers
	// recordRules has those of all changes of the rules that came through the API, in the same way.
	recordRules
)

// Export calls put with records that depend on the state alone, and of which [Importer] makes the same state. The bytes
// are only valid during the call. It is safe for concurrent use.
func (s *State) Export(put func(record []byte) error) error {
	var err error
	send := func(record []byte) {
		if err == nil {
			err = put(record)
		}
	}
	chunks := s.exportedChunks()
	for _, d := range sorted(chunks) {
		send(chunks[d].append(protowire.AppendVarint([]byte{recordChunk}, protowire.EncodeBool(s.HasChunk(d)))))
	}
	for _, d := range sorted(s.located) {
		send(protowire.AppendVarint(append([]byte{recordLocated}, d[:]...), s.located[d]))
	}
	for _, d := range sorted(s.proposals) {
		send(s.proposals[d].append([]byte{recordProposal}))
	}
	for _, r := range s.History {
		b := append([]byte{recordActivation}, r.Digest[:]...)
		b = protowire.AppendVarint(protowire.AppendVarint(b, r.Revision), r.Proposed)
		send(protowire.AppendString(protowire.AppendString(b, r.Commit), r.Actor))
	}
	if s.Active != nil {
		send(append([]byte{recordActive}, s.Active.Digest[:]...))
		if s.Active.Rendered != nil {
			send(append([]byte{recordRendered}, s.Active.Rendered.encoded...))
		}
	}
	for _, list := range []struct {
		record    byte
		revisions []uint64
	}{{recordLayers, s.Layers}, {recordRules, s.Rules}} {
		if len(list.revisions) == 0 {
			continue
		}
		b := []byte{list.record}
		for _, revision := range list.revisions {
			b = protowire.AppendVarint(b, revision)
		}
		send(b)
	}
	return err
}

// exportedChunks returns the chunks in memory, and those of which the proposals consist.
func (s *State) exportedChunks() map[Digest]*chunk {
	all := maps.Clone(s.chunks)
	if all == nil {
		all = map[Digest]*chunk{}
	}
	for _, p := range s.proposals {
		maps.Copy(all, p.chunks())
	}
	return all
}

// chunks returns the chunks of all files.
func (p *Proposal) chunks() map[Digest]*chunk {
	all := map[Digest]*chunk{}
	for _, f := range p.files() {
		for _, c := range f.Data.chunks {
			all[c.digest] = c
		}
	}
	return all
}

// files returns the form, and then the sources.
func (p *Proposal) files() []File { return append([]File{{Data: p.Form}}, p.Sources...) }

func sorted[V any](m map[Digest]V) []Digest {
	return slices.SortedFunc(maps.Keys(m), func(a, b Digest) int { return bytes.Compare(a[:], b[:]) })
}

func (p *Proposal) append(b []byte) []byte {
	b = protowire.AppendVarint(b, p.Revision)
	b = append(append(b, p.Digest[:]...), p.SourceDigest[:]...)
	for _, text := range []string{p.Compiler, p.Language, p.Package, p.Commit} {
		b = protowire.AppendString(b, text)
	}
	files := p.files()
	b = protowire.AppendVarint(b, uint64(len(files)))
	for _, f := range files {
		b = protowire.AppendString(b, f.Path)
		b = protowire.AppendVarint(b, uint64(f.Data.size))
		for _, c := range f.Data.chunks {
			b = append(b, c.digest[:]...)
		}
	}
	return b
}

// Importer makes a state of the records of [State.Export]. It is for one goroutine.
type Importer struct {
	state  State
	chunks map[Digest]*chunk
	active *Digest

	rendered *Rendered
}

// errRecord reports a record that Export does not make.
var errRecord = errors.New("policies: the record is not one of this version")

// Add adds the next record, and copies what it keeps of it.
func (i *Importer) Add(record []byte) error {
	if len(record) == 0 {
		return errRecord
	}
	if i.chunks == nil {
		i.chunks = map[Digest]*chunk{}
	}
	p := parts{rest: record[1:]}
	switch record[0] {
	case recordChunk:
		i.chunk(&p)
	case recordLocated:
		i.state.located = put(i.state.located, p.digest(), p.number())
	case recordProposal:
		proposal, err := i.proposal(&p)
		if err != nil {
			return err
		}
		i.state.proposals = put(i.state.proposals, proposal.Digest, proposal)
	case recordActivation:
		i.state.History = append(i.state.History, Record{Digest: p.digest(), Revision: p.number(), Proposed: p.number(), Commit: p.text(), Actor: p.text()})
	case recordActive:
		d := p.digest()
		i.active = &d
	case recordRendered:
		var err error
		if i.rendered, err = decodeRendered(bytes.Clone(p.rest)); err != nil {
			return fmt.Errorf("policies: %w", err)
		}
		p.rest = nil
	case recordLayers:
		for len(p.rest) > 0 && !p.bad {
			i.state.Layers = append(i.state.Layers, p.number())
		}
	case recordRules:
		for len(p.rest) > 0 && !p.bad {
			i.state.Rules = append(i.state.Rules, p.number())
		}
	default:
		return errRecord
	}
	if p.bad || len(p.rest) > 0 {
		return errRecord
	}
	return nil
}

// put adds an item to a map, which it makes if there is none.
func put[V any](m map[Digest]V, d Digest, v V) map[Digest]V {
	if m == nil {
		m = map[Digest]V{}
	}
	m[d] = v
	return m
}

func (i *Importer) chunk(p *parts) {
	usable := p.number() != 0
	c := newChunk(p.rest)
	p.rest = nil
	if i.chunks[c.digest] = c; usable {
		i.state.chunks = put(i.state.chunks, c.digest, c)
	}
}

func (i *Importer) proposal(p *parts) (*Proposal, error) {
	r := &Proposal{Revision: p.number(), Digest: p.digest(), SourceDigest: p.digest(), Compiler: p.text(), Language: p.text(), Package: p.text(), Commit: p.text()}
	files := make([]File, 0, 16)
	for n := p.number(); n > 0 && !p.bad; n-- {
		f := File{Path: p.text()}
		size := p.number()
		for uint64(f.Data.size) < size && !p.bad {
			c := i.chunks[p.digest()]
			if c == nil || c.size == 0 {
				return nil, fmt.Errorf("policies: a chunk of the policy proposed at revision %d is missing", r.Revision)
			}
			f.Data.add(c)
		}
		if uint64(f.Data.size) != size {
			return nil, errRecord
		}
		files = append(files, f)
	}
	if p.bad || len(files) == 0 {
		return nil, errRecord
	}
	if r.Form = files[0].Data; r.Form.Digest() != r.Digest {
		return nil, fmt.Errorf("policies: the form of policy %v has another digest", r.Digest)
	}
	if len(files) > 1 {
		r.Sources = slices.Clone(files[1:])
	}
	return r, nil
}

// State returns the state. The importer must not be used afterwards.
func (i *Importer) State() (*State, error) {
	n := len(i.state.History)
	if n == 0 && i.active == nil {
		return &i.state, nil
	}
	if n == 0 || i.active == nil || i.state.History[n-1].Digest != *i.active || i.state.proposals[*i.active] == nil {
		return nil, fmt.Errorf("policies: the policy in force is not the last one activated, or its proposal is missing")
	}
	last := i.state.History[n-1]
	i.state.Active = &Activation{Proposal: i.state.proposals[*i.active], Revision: last.Revision, Actor: last.Actor, Rendered: i.rendered}
	return &i.state, nil
}

// parts reads the parts of a record. bad is set once a part is not there.
type parts struct {
	rest []byte
	bad  bool
}

func (p *parts) number() uint64 {
	v, n := protowire.ConsumeVarint(p.rest)
	p.skip(n)
	return v
}

func (p *parts) text() string {
	v, n := protowire.ConsumeBytes(p.rest)
	p.skip(n)
	return string(v)
}

func (p *parts) digest() (d Digest) {
	if len(p.rest) < len(d) {
		p.skip(-1)
		return d
	}
	copy(d[:], p.rest)
	p.skip(len(d))
	return d
}

func (p *parts) skip(n int) {
	if n < 0 || p.bad {
		p.rest, p.bad = nil, true
		return
	}
	p.rest = p.rest[n:]
}
