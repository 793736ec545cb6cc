// Package policies is the projection of the law: which policy is in force, since
// which revision, and the bytes it was proposed with. It does not understand them;
// core compiles them.
//
// A [State] never changes: Apply returns the next one. It keeps the bytes of the
// policy in force and of proposals made since. What an older one was stays in the
// log.
package policies

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Digest is a SHA-256: of a form, which is what identifies a policy, or of a chunk.
type Digest [sha256.Size]byte

// DigestOf hashes bytes.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Proposal is a policy that can be put in force.
type Proposal struct {
	Revision     uint64
	Digest       Digest
	SourceDigest Digest
	Compiler     string
	Language     string
	// Package is the folder of the bundle in the module of Sources.
	Package string
	Commit  string
	// Form is the canonical form, of which Digest is the hash.
	Form []byte
	// Sources are the files it was compiled from.
	Sources []File
}

// File is a source file.
type File struct {
	Path string
	Data []byte
}

// Activation is a policy in force from a revision on.
type Activation struct {
	*Proposal
	Revision uint64
	Actor    string
}

// State is the law at one revision.
type State struct {
	// Active is nil until the first activation.
	Active    *Activation
	proposals map[Digest]*Proposal
	chunks    map[Digest][]byte
}

// ActiveRevision is the revision of the activation in force, 0 if there is none.
func (s *State) ActiveRevision() uint64 {
	if s.Active == nil {
		return 0
	}
	return s.Active.Revision
}

// HasChunk tells whether a proposal may refer to a chunk.
func (s *State) HasChunk(d Digest) bool {
	_, ok := s.chunks[d]
	return ok
}

// Apply folds one event that stands at a revision. Events about other things leave
// the state as it is; an error means that the event cannot follow it.
func (s *State) Apply(e *eventlog.Event, revision uint64) (*State, error) {
	var next *State
	var err error
	switch e.Meta.GetType() {
	case logpb.Type_TYPE_POLICY_CHUNK:
		next, err = s.chunk(e)
	case logpb.Type_TYPE_POLICY_PROPOSED:
		next, err = s.propose(e, revision)
	case logpb.Type_TYPE_POLICY_ACTIVATED:
		next, err = s.activate(e, revision)
	default:
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("policies: event at revision %d: %w", revision, err)
	}
	return next, nil
}

func (s *State) chunk(e *eventlog.Event) (*State, error) {
	digest, err := digest(e.Meta.GetPolicyChunk().GetDigest())
	if err != nil {
		return nil, err
	}
	content := e.Content(logpb.Role_ROLE_CHUNK)
	if DigestOf(content) != digest {
		return nil, fmt.Errorf("chunk %v has other content", digest)
	}
	next := &State{Active: s.Active, proposals: s.proposals, chunks: maps.Clone(s.chunks)}
	if next.chunks == nil {
		next.chunks = map[Digest][]byte{}
	}
	next.chunks[digest] = content
	return next, nil
}

func (s *State) propose(e *eventlog.Event, revision uint64) (*State, error) {
	p := e.Meta.GetPolicyProposed()
	proposal := &Proposal{Revision: revision, Compiler: p.GetCompiler(), Language: p.GetLanguage(), Commit: p.GetCommit(), Package: p.GetPackage()}
	var err error
	if proposal.Digest, err = digest(p.GetDigest()); err != nil {
		return nil, err
	}
	if proposal.SourceDigest, err = digest(p.GetSourceDigest()); err != nil {
		return nil, err
	}
	if proposal.Form, err = s.file(p.GetForm()); err != nil {
		return nil, err
	}
	if DigestOf(proposal.Form) != proposal.Digest {
		return nil, fmt.Errorf("the form of policy %v has another digest", proposal.Digest)
	}
	for _, f := range p.GetSources() {
		data, err := s.file(f)
		if err != nil {
			return nil, err
		}
		proposal.Sources = append(proposal.Sources, File{Path: f.GetPath(), Data: data})
	}
	next := &State{Active: s.Active, proposals: maps.Clone(s.proposals), chunks: s.chunks}
	if next.proposals == nil {
		next.proposals = map[Digest]*Proposal{}
	}
	next.proposals[proposal.Digest] = proposal
	return next, nil
}

func (s *State) activate(e *eventlog.Event, revision uint64) (*State, error) {
	a := e.Meta.GetPolicyActivated()
	d, err := digest(a.GetDigest())
	if err != nil {
		return nil, err
	}
	proposal := s.proposals[d]
	if proposal == nil {
		return nil, fmt.Errorf("policy %v has not been proposed", d)
	}
	var inForce []byte
	if s.Active != nil {
		inForce = s.Active.Digest[:]
	}
	if !bytes.Equal(inForce, a.GetExpectedPrevious()) {
		return nil, fmt.Errorf("%w: it is %x, the activation expects %x", ErrOtherInForce, inForce, a.GetExpectedPrevious())
	}
	next := &State{
		Active:    &Activation{Proposal: proposal, Revision: revision, Actor: e.Meta.GetActor().GetUser()},
		proposals: map[Digest]*Proposal{d: proposal},
		chunks:    map[Digest][]byte{},
	}
	for _, c := range Chunks(proposal.Form) {
		next.chunks[DigestOf(c)] = c
	}
	for _, f := range proposal.Sources {
		for _, c := range Chunks(f.Data) {
			next.chunks[DigestOf(c)] = c
		}
	}
	return next, nil
}

// ErrOtherInForce reports an activation that expects to replace another policy than
// the one in force.
var ErrOtherInForce = errors.New("another policy is in force")

func (s *State) file(f *logpb.File) ([]byte, error) {
	data := make([]byte, 0, min(f.GetSize(), 1<<20))
	for _, c := range f.GetChunks() {
		d, err := digest(c)
		if err != nil {
			return nil, err
		}
		chunk, ok := s.chunks[d]
		if !ok {
			return nil, fmt.Errorf("file %s: chunk %v is missing", f.GetPath(), d)
		}
		data = append(data, chunk...)
	}
	if uint64(len(data)) != f.GetSize() {
		return nil, fmt.Errorf("file %s has %d bytes, not %d", f.GetPath(), len(data), f.GetSize())
	}
	return data, nil
}

func digest(b []byte) (d Digest, err error) {
	if len(b) != len(d) {
		return d, fmt.Errorf("digest of %d bytes", len(b))
	}
	return Digest(b), nil
}

// chunkSize is well below the limit of a batch.
const chunkSize = 256 << 10

// Chunks cuts a file into the pieces in which the log holds it.
func Chunks(data []byte) [][]byte {
	var chunks [][]byte
	for len(data) > 0 {
		n := min(len(data), chunkSize)
		chunks = append(chunks, data[:n:n])
		data = data[n:]
	}
	return chunks
}

// Events are what proposes a policy to a log that is in this state: the chunks that
// it does not hold yet, then the proposal. Each can be committed by itself.
func (p *Proposal) Events(s *State) []*eventlog.Event {
	var events []*eventlog.Event
	sent := map[Digest]bool{}
	file := func(path string, data []byte) *logpb.File {
		f := &logpb.File{Path: path, Size: uint64(len(data))}
		for _, c := range Chunks(data) {
			d := DigestOf(c)
			f.Chunks = append(f.Chunks, d[:])
			if s.HasChunk(d) || sent[d] {
				continue
			}
			sent[d] = true
			e := &eventlog.Event{Meta: &logpb.Metadata{
				Type:   logpb.Type_TYPE_POLICY_CHUNK,
				Detail: &logpb.Metadata_PolicyChunk{PolicyChunk: &logpb.PolicyChunk{Digest: d[:]}},
			}}
			e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_CHUNK, MediaType: "application/octet-stream"}, c)
			events = append(events, e)
		}
		return f
	}
	proposed := &logpb.PolicyProposed{
		Digest: p.Digest[:], SourceDigest: p.SourceDigest[:],
		Compiler: p.Compiler, Language: p.Language, Commit: p.Commit, Package: p.Package,
		Form: file("", p.Form),
	}
	for _, f := range p.Sources {
		proposed.Sources = append(proposed.Sources, file(f.Path, f.Data))
	}
	return append(events, &eventlog.Event{Meta: &logpb.Metadata{
		Type:   logpb.Type_TYPE_POLICY_PROPOSED,
		Detail: &logpb.Metadata_PolicyProposed{PolicyProposed: proposed},
	}})
}
