package explain

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/resources/changes"
	"stele.dev/stele/eventlog/logpb"
)

// The stages of requests, in their order: those of all, then those of writes and those of others.
var (
	stagesOfAll    = []string{"connection", "authentication", "impersonation", "flow", "authorization"}
	stagesOfWrites = []string{"decode", "mutation", "schema", "conditions", "validation", "commit"}
	stagesOfOthers = []string{"answer"}
)

// Decided explains a request that left no event in the log of record, by the metadata of its event in the log of decisions.
func Decided(m *logpb.Metadata) *Explanation {
	d, q := m.GetDecision(), m.GetRequest()
	e := &Explanation{TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: Kind}}
	e.Name, e.CreationTimestamp = q.GetAuditId(), metav1.NewTime(time.Unix(0, q.GetReceivedUnixNano()))
	e.Spec = specOf(m)
	e.Status = Status{Code: int(q.GetStatus()), Reason: d.GetReason(), Message: d.GetMessage(), Policy: hex.EncodeToString(m.GetPolicyDigest()), Revision: d.GetRevision(), Audit: AuditOf(m.GetDecisions().GetAudit())}
	switch d.GetOutcome() {
	case logpb.Outcome_OUTCOME_READ, logpb.Outcome_OUTCOME_UNCHANGED, logpb.Outcome_OUTCOME_DRY_RUN, logpb.Outcome_OUTCOME_DONE:
		e.Status.Allowed = d.GetReason() == ""
	}
	stages := slices.Concat(stagesOfAll, stagesOfWrites)
	if slices.Contains(stagesOfOthers, d.GetStage()) {
		stages = slices.Concat(stagesOfAll, stagesOfOthers)
	}
	if i := slices.Index(stages, d.GetStage()); i >= 0 {
		stages = stages[:i+1]
	}
	for _, name := range stages {
		e.Status.Stages = append(e.Status.Stages, stageOf(name, m, !e.Status.Allowed && name == d.GetStage()))
	}
	return e
}

// specOf returns the request of an event.
func specOf(m *logpb.Metadata) Spec {
	q, by := m.GetRequest(), m.GetActor()
	s := Spec{Verb: q.GetVerb(), Subresource: q.GetSubresource(), User: by.GetUser(), UID: by.GetUid(), Groups: by.GetGroups(), FieldManager: q.GetFieldManager()}
	for _, x := range by.GetExtra() {
		if s.Extra == nil {
			s.Extra = map[string][]string{}
		}
		s.Extra[x.GetKey()] = x.GetValues()
	}
	path, query, _ := strings.Cut(call.WithoutMoment(q.GetUri()), "?")
	o := m.GetObject()
	if o == nil {
		s.Path = path
		return s
	}
	s.Group, s.Version, s.Resource, s.Namespace, s.Name = o.GetGroup(), o.GetVersion(), o.GetResource(), o.GetNamespace(), o.GetName()
	if values, err := url.ParseQuery(query); err == nil {
		s.FieldSelector, s.LabelSelector = values.Get("fieldSelector"), values.Get("labelSelector")
	}
	return s
}

// stageOf returns the verdict of one stage.
func stageOf(name string, m *logpb.Metadata, refused bool) Stage {
	d, by := m.GetDecision(), m.GetDecisions()
	s := Stage{Name: name, Verdict: Passed}
	asked := m.GetActor()
	if other := asked.GetImpersonator(); other != nil {
		asked = other
	}
	switch name {
	case "connection":
		path, _, _ := strings.Cut(m.GetRequest().GetUri(), "?")
		s.Message = cmp.Or(methods[m.GetRequest().GetVerb()], strings.ToUpper(m.GetRequest().GetVerb())) + " " + path
	case "authentication":
		s.Message = actorText(asked)
	case "impersonation":
		if s.Message = "as oneself"; asked != m.GetActor() {
			s.Message = "as " + actorText(m.GetActor())
		}
	case "flow":
		if d.GetFlowSchema() != "" {
			s.Flow = &Flow{Schema: d.GetFlowSchema(), PriorityLevel: d.GetPriorityLevel()}
			s.Message = "flow schema " + s.Flow.Schema + ", " + s.Flow.String()
		}
	case "authorization":
		s.Rule, s.Source, s.Message = by.GetRule(), by.GetSource(), by.GetReason()
	case "mutation":
		for _, m := range changes.MutationsOf(by) {
			s.Considered = append(s.Considered, Considered{Rule: m.Rule, Source: m.Source, Verdict: m.Verdict()})
		}
	case "validation":
		for _, f := range by.GetAdmission() {
			s.Considered = append(s.Considered, Considered{Rule: f.GetRule(), Source: f.GetSource(), Verdict: changes.Violation(f.GetAction(), f.GetMessage())})
		}
	case "commit":
		switch d.GetOutcome() {
		case logpb.Outcome_OUTCOME_DRY_RUN:
			s.Message = "a dry run: nothing is written"
		case logpb.Outcome_OUTCOME_UNCHANGED:
			s.Message = "the object is as it was: nothing is written"
		}
	}
	if refused {
		s.Verdict, s.Message = Refused, d.GetMessage()
		s.Rule, s.Source = d.GetRule(), d.GetSource()
	}
	return s
}

func actorText(a *logpb.Actor) string {
	if a == nil {
		return ""
	}
	return fmt.Sprintf("%s, in groups %s", a.GetUser(), strings.Join(a.GetGroups(), ", "))
}
