// Package policies is the projection of the policies: which policy is in force, since which revision, and
// the bytes of its proposal. It does not interpret them; core loads them.
//
// A [State] is immutable: Apply returns the next one. It has the bytes of the policy in force and of later
// proposals, compressed: see [Content]. Those of older policies are in the log.
package policies

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// Digest is the SHA-256 of a form, which identifies a policy, or of a chunk.
type Digest [sha256.Size]byte

// DigestOf returns the digest of b.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest parses what [Digest.String] returns.
func ParseDigest(text string) (d Digest, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("%q is not a SHA-256 digest in hexadecimal", text)
	}
	return Digest(b), nil
}

// Proposal is a policy that can be activated.
type Proposal struct {
	Revision     uint64
	Digest       Digest
	SourceDigest Digest
	Compiler     string
	Language     string
	// Package is the folder of the bundle in the module of Sources.
	Package string
	Commit  string
	// Form is the canonical form. Digest is its hash.
	Form Content
	// Sources are the files that the policy was compiled from.
	Sources []File
}

// File is a source file.
type File struct {
	Path string
	Data Content
}

// Activation is a policy that is in force from a revision on.
type Activation struct {
	*Proposal
	Revision uint64
	Actor    string
	// Rendered says how long the objects as which the policy is shown have been as they are; nil if the activation does not say it.
	Rendered *Rendered
}

// Record is an activation without the policy's bytes.
type Record struct {
	Digest   Digest
	Revision uint64 // of the activation
	Proposed uint64 // revision of the proposal
	Commit   string
	Actor    string
	// Layer is the revision of the last change of the definitions that came through the API, Rules that of the rules that did; 0 if there was none.
	// [State.InForce] sets them.
	Layer, Rules uint64
}

// Form identifies a policy with what came through the API, which is in force beside it.
type Form struct {
	Digest
	// Layer is the revision of the last change of the definitions, Rules that of the rules: roles, bindings, webhooks; 0 if there was none.
	Layer, Rules uint64
}

// Kinds identifies the kinds of the policy: they do not depend on the rules.
func (f Form) Kinds() Form { return Form{Digest: f.Digest, Layer: f.Layer} }

// Form returns what was in force.
func (r *Record) Form() Form { return Form{r.Digest, r.Layer, r.Rules} }

// State is what policies there are at one revision.
type State struct {
	// Active is the activation in force; nil until the first one.
	Active *Activation
	// History has all activations, in order; the last one is Active. [State.Recall] reads their
	// proposals from the log.
	History []Record
	// Layers has the revisions of all changes of the definitions that came through the API, in order. Since the last one, they are what the
	// objects are.
	Layers []uint64
	// Rules has those of all changes of the rules that came through the API.
	Rules     []uint64
	located   map[Digest]uint64 // revisions of all chunks in the log
	proposals map[Digest]*Proposal
	chunks    map[Digest]*chunk
}

// ActiveRevision returns the revision since which the policy has been in force as it is: that of its activation, or of the last change of the
// definitions and rules that came through the API; 0 if there is no policy.
func (s *State) ActiveRevision() uint64 {
	if s.Active == nil {
		return 0
	}
	return max(s.Active.Revision, last(s.Layers), last(s.Rules))
}

// Activated returns the revision of the activation in force; 0 if there is none.
func (s *State) Activated() uint64 {
	if s.Active == nil {
		return 0
	}
	return s.Active.Revision
}

// last returns the last of some revisions; 0 if there is none.
func last(revisions []uint64) uint64 {
	if len(revisions) == 0 {
		return 0
	}
	return revisions[len(revisions)-1]
}

// Form returns what is in force. There must be a policy.
func (s *State) Form() Form { return Form{s.Active.Digest, last(s.Layers), last(s.Rules)} }

// ChangeLayer returns the state after a change, at a revision, of the definitions that came through the API.
func (s *State) ChangeLayer(revision uint64) *State {
	next := *s
	next.Layers = append(slices.Clip(s.Layers), revision)
	return &next
}

// ChangeRules returns the state after a change, at a revision, of the rules that came through the API.
func (s *State) ChangeRules(revision uint64) *State {
	next := *s
	next.Rules = append(slices.Clip(s.Rules), revision)
	return &next
}

// ChangesAfter returns the revisions after one at which another policy, or other definitions or rules, came into force, in order.
func (s *State) ChangesAfter(revision uint64) (all []uint64) {
	for _, r := range s.History[s.activations(revision):] {
		all = append(all, r.Revision)
	}
	all = append(all, s.Layers[upTo(s.Layers, revision):]...)
	all = append(all, s.Rules[upTo(s.Rules, revision):]...)
	slices.Sort(all)
	return slices.Compact(all)
}

// upTo returns how many of some revisions, which are in order, are not after one.
func upTo(revisions []uint64, revision uint64) int {
	return sort.Search(len(revisions), func(i int) bool { return revisions[i] > revision })
}

// HasChunk reports whether a proposal may refer to a chunk.
func (s *State) HasChunk(d Digest) bool {
	_, ok := s.chunks[d]
	return ok
}

// Apply folds one event at a revision, and returns the next state. Events about other things do not change
// the state. An error means that the event cannot follow this state.
func (s *State) Apply(e *eventlog.Event, revision uint64) (*State, error) {
	var next *State
	var err error
	switch e.Meta.GetType() {
	case logpb.Type_TYPE_POLICY_CHUNK:
		next, err = s.chunk(e, revision)
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

func (s *State) chunk(e *eventlog.Event, revision uint64) (*State, error) {
	digest, err := digest(e.Meta.GetPolicyChunk().GetDigest())
	if err != nil {
		return nil, err
	}
	c := newChunk(e.Content(logpb.Role_ROLE_CHUNK))
	if c.digest != digest {
		return nil, fmt.Errorf("the content of chunk %v has another digest", digest)
	}
	next := *s
	next.chunks, next.located = withItem(s.chunks, digest, c), withItem(s.located, digest, revision)
	return &next, nil
}

// withItem returns a copy of m with one more item.
func withItem[V any](m map[Digest]V, d Digest, v V) map[Digest]V {
	if m = maps.Clone(m); m == nil {
		m = map[Digest]V{}
	}
	m[d] = v
	return m
}

func (s *State) propose(e *eventlog.Event, revision uint64) (*State, error) {
	proposal, err := proposalOf(e, revision, func(d Digest) (*chunk, error) {
		if c := s.chunks[d]; c != nil {
			return c, nil
		}
		return nil, fmt.Errorf("chunk %v is missing", d)
	})
	if err != nil {
		return nil, err
	}
	next := *s
	next.proposals = withItem(s.proposals, proposal.Digest, proposal)
	return &next, nil
}

// proposalOf makes a proposal from its event and from chunks, which find returns by their digests.
func proposalOf(e *eventlog.Event, revision uint64, find func(Digest) (*chunk, error)) (*Proposal, error) {
	p := e.Meta.GetPolicyProposed()
	proposal := &Proposal{Revision: revision, Compiler: p.GetCompiler(), Language: p.GetLanguage(), Commit: p.GetCommit(), Package: p.GetPackage()}
	var err error
	if proposal.Digest, err = digest(p.GetDigest()); err != nil {
		return nil, err
	}
	if proposal.SourceDigest, err = digest(p.GetSourceDigest()); err != nil {
		return nil, err
	}
	if proposal.Form, err = file(p.GetForm(), find); err != nil {
		return nil, err
	}
	if proposal.Form.Digest() != proposal.Digest {
		return nil, fmt.Errorf("the form of policy %v has another digest", proposal.Digest)
	}
	for _, f := range p.GetSources() {
		data, err := file(f, find)
		if err != nil {
			return nil, err
		}
		proposal.Sources = append(proposal.Sources, File{Path: f.GetPath(), Data: data})
	}
	return proposal, nil
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
	rendered, err := decodeRendered(a.GetRendered())
	if err != nil {
		return nil, err
	}
	next := &State{
		Layers: s.Layers, Rules: s.Rules,
		History: append(slices.Clip(s.History), Record{
			Digest: d, Revision: revision, Proposed: proposal.Revision, Commit: proposal.Commit, Actor: e.Meta.GetActor().GetUser()}),
		located:   s.located,
		Active:    &Activation{Proposal: proposal, Revision: revision, Actor: e.Meta.GetActor().GetUser(), Rendered: rendered},
		proposals: map[Digest]*Proposal{d: proposal},
		chunks:    proposal.chunks(),
	}
	return next, nil
}

// activations returns the number of activations up to a revision.
func (s *State) activations(revision uint64) int {
	return sort.Search(len(s.History), func(i int) bool { return s.History[i].Revision > revision })
}

// InForce returns the activation that was in force at a revision, and whether there was one.
func (s *State) InForce(revision uint64) (Record, bool) {
	n := s.activations(revision)
	if n == 0 {
		return Record{}, false
	}
	r := s.History[n-1]
	r.Layer, r.Rules = last(s.Layers[:upTo(s.Layers, revision)]), last(s.Rules[:upTo(s.Rules, revision)])
	return r, true
}

// AccessChanges returns a record for each revision at which users may have gained or lost rights, in order: for each activation, and for each change of rules that
// came through the API. A record says what is in force from its revision on. That of a change of rules has no actor.
func (s *State) AccessChanges() []Record {
	all := make([]Record, 0, len(s.History)+len(s.Rules))
	rules := s.Rules
	for i, r := range s.History {
		before := upTo(rules, r.Revision)
		rules = rules[before:]
		r, _ = s.InForce(r.Revision)
		all = append(all, r)
		end := len(rules)
		if i+1 < len(s.History) {
			end = upTo(rules, s.History[i+1].Revision-1)
		}
		for _, revision := range rules[:end] {
			r, _ := s.InForce(revision)
			r.Revision, r.Actor = revision, ""
			all = append(all, r)
		}
		rules = rules[end:]
	}
	return all
}

// At returns the state at an earlier revision. The caller passes the proposal of the policy that was in
// force then, and what its activation says of rendered objects; nil if there was none. No event can be applied to the result.
func (s *State) At(revision uint64, proposal *Proposal, rendered *Rendered) *State {
	n := s.activations(revision)
	layers, rules := upTo(s.Layers, revision), upTo(s.Rules, revision)
	past := &State{History: s.History[:n:n], Layers: s.Layers[:layers:layers], Rules: s.Rules[:rules:rules], located: s.located}
	if n > 0 {
		active := past.History[n-1]
		past.Active = &Activation{Proposal: proposal, Revision: active.Revision, Actor: active.Actor, Rendered: rendered}
	}
	return past
}

// Recall reads the proposal of an activation from the log.
func (s *State) Recall(ctx context.Context, log eventlog.Reader, r Record) (*Proposal, error) {
	proposed, err := eventAt(ctx, log, r.Proposed)
	if err != nil {
		return nil, err
	}
	return proposalOf(proposed, r.Proposed, func(d Digest) (*chunk, error) {
		content, err := s.recallChunk(ctx, log, d)
		if err != nil {
			return nil, err
		}
		return newChunk(content), nil
	})
}

// Chunk returns a chunk of the log; nil if the log does not have it.
func (s *State) Chunk(ctx context.Context, log eventlog.Reader, d Digest) ([]byte, error) {
	if c := s.chunks[d]; c != nil {
		return c.append(nil), nil
	}
	if s.located[d] == 0 {
		return nil, nil
	}
	return s.recallChunk(ctx, log, d)
}

// recallChunk reads a chunk from the log.
func (s *State) recallChunk(ctx context.Context, log eventlog.Reader, d Digest) ([]byte, error) {
	e, err := eventAt(ctx, log, s.located[d])
	if err != nil {
		return nil, err
	}
	content := e.Content(logpb.Role_ROLE_CHUNK)
	if DigestOf(content) != d {
		return nil, fmt.Errorf("chunk %v is no longer in the log", d)
	}
	return content, nil
}

// eventAt reads the event at a revision.
func eventAt(ctx context.Context, log eventlog.Reader, revision uint64) (*eventlog.Event, error) {
	batches, err := log.Back(ctx, revision, 1)
	if err != nil {
		return nil, err
	}
	for _, b := range batches {
		for _, e := range b.Events {
			if e.Revision == revision {
				return e, nil
			}
		}
	}
	return nil, fmt.Errorf("%w %d", errNoEvent, revision)
}

// errNoEvent reports that the log has no event at a revision, or not any more.
var errNoEvent = errors.New("policies: there is no event at revision")

// ErrOtherInForce reports an activation whose expected previous policy is not the one in force.
var ErrOtherInForce = errors.New("another policy is in force")

// file returns the content of a file, whose chunks find returns by their digests.
func file(f *logpb.File, find func(Digest) (*chunk, error)) (content Content, err error) {
	for _, b := range f.GetChunks() {
		d, err := digest(b)
		if err != nil {
			return Content{}, err
		}
		c, err := find(d)
		if err != nil {
			return Content{}, fmt.Errorf("file %s: %w", f.GetPath(), err)
		}
		if content.add(c); uint64(content.size) > f.GetSize() {
			break
		}
	}
	if uint64(content.size) != f.GetSize() {
		return Content{}, fmt.Errorf("file %s has %d bytes, not %d", f.GetPath(), content.size, f.GetSize())
	}
	return content, nil
}

func digest(b []byte) (d Digest, err error) {
	if len(b) != len(d) {
		return d, fmt.Errorf("digest of %d bytes", len(b))
	}
	return Digest(b), nil
}

// Events returns the events that propose a policy to a log in this state: the chunks that it does not have
// yet, then the proposal. Each can be committed by itself.
func (p *Proposal) Events(s *State) []*eventlog.Event {
	var events []*eventlog.Event
	sent := map[Digest]bool{}
	file := func(path string, content Content) *logpb.File {
		f := &logpb.File{Path: path, Size: uint64(content.size)}
		for _, c := range content.chunks {
			f.Chunks = append(f.Chunks, c.digest[:])
			if s.HasChunk(c.digest) || sent[c.digest] {
				continue
			}
			sent[c.digest] = true
			e := &eventlog.Event{Meta: &logpb.Metadata{
				Type:   logpb.Type_TYPE_POLICY_CHUNK,
				Detail: &logpb.Metadata_PolicyChunk{PolicyChunk: &logpb.PolicyChunk{Digest: c.digest[:]}},
			}}
			e.AddContent(&logpb.Payload{Role: logpb.Role_ROLE_CHUNK, MediaType: "application/octet-stream"}, c.append(nil))
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
