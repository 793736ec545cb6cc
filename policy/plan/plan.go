// Package plan says what a change of policy means: which stored objects break, who gains or loses access, which
// requests are decided otherwise. It has the document, its classes and its rules. The packages below it compare two
// policies; core/resources/plans adds what is stored and what was recorded.
package plan

import (
	"encoding/json"
	"slices"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// The type of the document.
const (
	APIVersion = "client.stele.dev/v1"
	Kind       = "Plan"
)

// Class says how much a finding matters to a reviewer.
type Class string

// The classes, the most dangerous first.
const (
	Breaks  Class = "breaks"  // something that works now will not
	Widens  Class = "widens"  // somebody may do more, or a rule refuses less
	Narrows Class = "narrows" // somebody may do less, or a rule refuses more, and nothing stored violates it
	Changes Class = "changes" // neither more nor less, or it cannot be told
	Looks   Class = "looks"   // columns, short names, comments, order
)

// Untried stands for findings of which the stored objects decide whether they break something, if none were looked at. No finding has this class: it is for
// [Finding.Among].
const Untried Class = "untried"

// Classes are all classes, the most dangerous first.
var Classes = []Class{Breaks, Widens, Narrows, Changes, Looks}

// Evidence says how a finding is known.
type Evidence string

// The kinds of evidence, the strongest first.
const (
	Proved   Evidence = "proved"   // by comparing what the compiler made: it holds for every object or request
	Shown    Evidence = "shown"    // by a counterexample that one side accepts and the other refuses
	Observed Evidence = "observed" // in stored objects or recorded requests
	Possible Evidence = "possible" // the text differs, and neither of the above decides
)

// Plan is what a change of policy means. Its JSON is deterministic: the same sides, objects and records give the same
// bytes.
type Plan struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Cluster is the name of the control plane that the new policy is for.
	Cluster string `json:"cluster"`
	// From is the policy that is replaced, To the one that replaces it.
	From Side `json:"from"`
	To   Side `json:"to"`
	// Revision is the revision of the log at which objects and records were read; 0 if no server was asked.
	Revision uint64 `json:"revision,omitempty"`
	// Summary counts the findings.
	Summary Summary `json:"summary"`
	// Checked says how much was looked at.
	Checked Checked `json:"checked"`
	// Findings are sorted: by section, class, kind, path and rule.
	Findings []Finding `json:"findings"`
	// Replay is what would become of recorded writes; nil if none were decided again.
	Replay *Replay `json:"replay,omitempty"`
	// Notes say what the plan cannot see, in sentences.
	Notes []string `json:"notes,omitempty"`
}

// Side is one of the two policies.
type Side struct {
	// Digest is the SHA-256 of the policy's form; empty if there is no policy.
	Digest string `json:"digest,omitempty"`
	// Revision is the revision since which the policy is or was in force; 0 if it is not from a server.
	Revision uint64 `json:"revision,omitempty"`
	// Commit is the commit of its sources, and Changed are the files of the module that differ from the commit.
	Commit  string   `json:"commit,omitempty"`
	Changed []string `json:"changed,omitempty"`
	// Folder is the folder of the bundle, if it was read from one.
	Folder string `json:"folder,omitempty"`
}

// Summary counts findings by class. Accepted findings count in their class too.
type Summary struct {
	Breaks   int `json:"breaks"`
	Widens   int `json:"widens"`
	Narrows  int `json:"narrows"`
	Changes  int `json:"changes"`
	Looks    int `json:"looks"`
	Accepted int `json:"accepted"`
}

// Checked says how much was looked at.
type Checked struct {
	// Objects is the number of stored objects that were tried, Of the number of those that the change could concern.
	Objects int `json:"objects"`
	Of      int `json:"of"`
	// NotTried are the kinds whose stored objects the change could concern and that were not tried, because the caller may not read
	// them: as plural.group, sorted. Nothing is known of them, not even their number.
	NotTried []string `json:"notTried,omitempty"`
	// Replayed is the number of recorded writes that were decided again.
	Replayed int `json:"replayed"`
}

// Leave notes that the stored objects of a kind were not tried, and why.
func (p *Plan) Leave(kind, why string) {
	if i, found := slices.BinarySearch(p.Checked.NotTried, kind); !found {
		p.Checked.NotTried = slices.Insert(p.Checked.NotTried, i, kind)
	}
	p.Notes = append(p.Notes, why)
}

// Finding is one meaning of the change.
type Finding struct {
	// ID is stable: it follows from the rule, the kind, the path and the subject. [Plan.Finish] sets it.
	ID string `json:"id"`
	// Class is the rule's class, or a more dangerous one if the evidence says so.
	Class Class `json:"class"`
	// Rule is the name of the rule that found it, see [Rules].
	Rule string `json:"rule"`
	// Kind is the resource of the kind, as plural.group, if it is about one.
	Kind string `json:"kind,omitempty"`
	// Version is the version of the kind, if only one of several is meant.
	Version string `json:"version,omitempty"`
	// Path is what the finding is about: the path of a field, or the ID of a rule, a binding or another part of the
	// bundle.
	Path string `json:"path,omitempty"`
	// Subject is whom it is about, if it is about access: user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME.
	Subject string `json:"subject,omitempty"`
	// With is the path of another finding about the kind that has the same cause: the other name of a field that seems to be renamed,
	// or the disjunction whose removed alternative had the field.
	With string `json:"with,omitempty"`
	// Before and After are the two sides in words; empty if there is nothing on that side.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Source is the line in the new policy, Was the line in the old one.
	Source schemas.Position `json:"source,omitzero"`
	Was    schemas.Position `json:"was,omitzero"`
	// Message is one sentence: what changes. It does not repeat Path, Before and After. It may be empty.
	Message string `json:"message,omitempty"`
	// Details are further sentences, one a line: whom it concerns, and how.
	Details []string `json:"details,omitempty"`
	// Fix says what to do, one step a line.
	Fix []string `json:"fix,omitempty"`
	// Evidence says how the finding is known.
	Evidence Evidence `json:"evidence"`
	// Counterexample is a request or an object that one side accepts and the other refuses.
	Counterexample *Counterexample `json:"counterexample,omitempty"`
	// Objects are the stored objects that it concerns; nil if none were looked at.
	Objects *Objects `json:"objects,omitempty"`
	// Scope is the set of requests, if the finding is about access. See package rights.
	Scope json.RawMessage `json:"scope,omitempty"`
	// Accepted says who accepted the finding; nil if nobody did.
	Accepted *Acceptance `json:"accepted,omitempty"`
}

// triedOnObjects are the rules whose class stored objects raise to breaks.
var triedOnObjects = []string{
	"BOUND_TIGHTENED", "PATTERN_CHANGED", "ENUM_VALUE_REMOVED", "ALTERNATIVE_REMOVED", "CONSTRAINT_CHANGED", "VALIDATION_ADDED", "VALIDATION_CHANGED",
}

// Among reports whether the finding is of one of the classes. One of them may be [Untried].
func (f *Finding) Among(classes []Class) bool {
	if slices.Contains(classes, f.Class) {
		return true
	}
	return slices.Contains(classes, Untried) && f.Objects == nil && (f.Class == Narrows || f.Class == Changes) && slices.Contains(triedOnObjects, f.Rule)
}

// Counterexample is what the two sides decide differently.
type Counterexample struct {
	// Request is the request in words: "create databases in data-shop by user:dana".
	Request string `json:"request,omitempty"`
	// Object and Old are the object and the one it replaces, as JSON.
	Object json.RawMessage `json:"object,omitempty"`
	Old    json.RawMessage `json:"old,omitempty"`
	// Stored are the other stored objects on which both sides decide, as JSON, if there are any.
	Stored []json.RawMessage `json:"stored,omitempty"`
	// Before and After are the verdicts: "accepted", or the message of the refusal.
	Before string `json:"before"`
	After  string `json:"after"`
}

// Objects counts stored objects. An object may fail in several ways.
type Objects struct {
	// Violating is the number of objects that could not be created as they are: by a restore, an undelete or from Git.
	Violating int `json:"violating"`
	// Stuck is the number of objects of which no update is possible, even one that touches nothing else.
	Stuck int `json:"stuck"`
	// StatusStuck is the number of objects whose status could not be written.
	StatusStuck int `json:"statusStuck"`
	// Differ is the number of objects that would be shown differently.
	Differ int `json:"differ"`
	// Of is the number of stored objects of the kind.
	Of int `json:"of"`
	// Samples are some of the objects, those with the most extreme values first, else by namespace and name. They are
	// empty for users who may not list the kind.
	Samples []Sample `json:"samples,omitempty"`
}

// Sample is a stored object.
type Sample struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Value is the value at the finding's path, as JSON; empty if there is none, or if it is secret.
	Value json.RawMessage `json:"value,omitempty"`
	// Message is why it fails.
	Message string `json:"message,omitempty"`
	Stuck   bool   `json:"stuck,omitempty"`
}

// Replay is what would become of the recorded requests of a span.
type Replay struct {
	// Since and Until are the first and the last revision of the span.
	Since uint64 `json:"since"`
	Until uint64 `json:"until"`
	// Writes is the number of recorded writes, Refusals that of recorded refusals that were decided again.
	Writes   int `json:"writes"`
	Refusals int `json:"refusals"`
	// Reads is the number of recorded reads that were decided again.
	Reads int `json:"reads,omitempty"`
	// Undecided is the number of requests that could not be decided again, Why says the reasons.
	Undecided int      `json:"undecided,omitempty"`
	Why       []string `json:"why,omitempty"`
	// Flips are the requests that would be decided otherwise, grouped, the largest group first.
	Flips []Flip `json:"flips"`
	// Alterations are the fields of objects that rules of mutate would change otherwise in recorded writes that both policies
	// allow, grouped, the largest group first.
	Alterations []Alteration `json:"alterations,omitempty"`
}

// Alteration is a field that the rules of mutate of two policies set to different values in recorded writes.
type Alteration struct {
	Verb string `json:"verb"`
	// Resource is plural.group, with /subresource.
	Resource string `json:"resource"`
	// Path is the path of the field.
	Path string `json:"path"`
	// Rule is the change that sets the field under the new policy, or else the one that sets it under the older one.
	Rule   string `json:"rule"`
	Source string `json:"source,omitempty"`
	// Was is true if Rule is of the older policy: the new one leaves the field alone.
	Was   bool `json:"was,omitempty"`
	Count int  `json:"count"`
	// First and Last are the revisions of the first and the last of the writes, Objects is the number of their objects.
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	Objects int    `json:"objects"`
	// Finding is the ID of the finding about the rule, if there is one.
	Finding string `json:"finding,omitempty"`
}

// Flip is a group of recorded requests that would be decided otherwise for the same reason.
type Flip struct {
	// Refused is true if they were allowed and would be refused; false if they were refused and would be allowed.
	Refused bool   `json:"refused"`
	User    string `json:"user"`
	Verb    string `json:"verb"`
	// Resource is plural.group, with /subresource.
	Resource string `json:"resource"`
	// Stage and Rule are what refuses them: under the new policy, or under the older one if they would be allowed. Message says
	// why.
	Stage   string `json:"stage"`
	Rule    string `json:"rule,omitempty"`
	Path    string `json:"path,omitempty"` // of the field
	Source  string `json:"source,omitempty"`
	Message string `json:"message"`
	Count   int    `json:"count"`
	// First and Last are the revisions of the first and the last of them; of requests that wrote nothing, those of the states
	// on which they were decided.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// AuditIDs are those of some of them.
	AuditIDs []string `json:"auditIDs,omitempty"`
	// Finding is the ID of the finding that explains them, if there is one.
	Finding string `json:"finding,omitempty"`
}

// Acceptance says why a finding is wanted.
type Acceptance struct {
	Reason string `json:"reason,omitempty"`
	// Until is the last day on which it holds, as YYYY-MM-DD; empty for ever.
	Until string `json:"until,omitempty"`
	// Source is the line; empty for a flag.
	Source schemas.Position `json:"source,omitzero"`
}

// Sides are the two policies to compare, compiled and loaded. From is nil if there is no policy in force. They are
// never changed.
type Sides struct {
	From, To *policy.Policy
}
