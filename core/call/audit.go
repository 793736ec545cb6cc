package call

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"stele.dev/stele/eventlog/logpb"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
	"stele.dev/stele/projections/audit/hashing"
)

// maxStages is the maximum number of stages of [Timings].
const maxStages = 16

// Timings are how long the stages of a request took so far. A stage that ran several times counts as a whole.
type Timings struct {
	Stages []string // their names, at most 16
	took   [maxStages]time.Duration
}

// Add adds the time of one run of the stage with a number.
func (t *Timings) Add(stage int, d time.Duration) {
	if stage < maxStages {
		t.took[stage] += d
	}
}

// Took returns how long all runs of a stage took.
func (t *Timings) Took(stage int) time.Duration { return t.took[stage] }

// String returns the times in microseconds, such as "authorization=3 decode=41". Stages below a microsecond are left out.
func (t *Timings) String() string {
	var text [256]byte
	b := text[:0]
	for i, name := range t.Stages {
		us := t.took[i].Microseconds()
		if us == 0 {
			continue
		}
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = append(append(b, name...), '=')
		b = strconv.AppendInt(b, us, 10)
	}
	return string(b)
}

// ClassifyAudit sets the audit rule of the request: that of the tip's policy which matches the user who sent it, also if that
// user impersonates another one. A watch keeps the rule that it began with. inside says that the program itself makes the
// request: what is recorded without audit rules is not meant for it.
func (c *Call) ClassifyAudit(tables *audits.Tables, inside bool) {
	if c.Audit != nil && c.Reauthorize != nil {
		return
	}
	i := c.Info
	q := policy.Request{User: c.Requester.GetName(), Groups: c.Requester.GetGroups(), Verb: i.Verb, IsResource: i.IsResourceRequest, Path: i.Path,
		Group: i.APIGroup, Resource: i.Resource, Subresource: i.Subresource, Namespace: i.Namespace, Name: i.Name}
	table := tables.Of(c.Tip.Policy)
	if c.Audit = table.Classify(&q); inside && c.Audit.ID == audits.SecretReads {
		c.Audit = table.Unmatched()
	}
}

// Annotate adds an annotation to what the audit log shows of the request. As in kube-apiserver, the first value of a key
// stays. A long value is cut.
func (c *Call) Annotate(key, value string) {
	if len(c.annotations) == maxAnnotations || slices.ContainsFunc(c.annotations, func(a *logpb.Annotation) bool { return a.Key == key }) {
		return
	}
	next := &logpb.Annotation{Key: UTF8(key), Value: strings.ToValidUTF8(value[:min(len(value), MaxAnnotation)], "")}
	bytes := len(next.Key) + len(next.Value)
	for _, a := range c.annotations {
		bytes += len(a.Key) + len(a.Value)
	}
	if bytes <= annotationBytes {
		c.annotations = append(c.annotations, next)
	}
}

// MaxAnnotation is the maximum length of the value of an annotation: that of kube-apiserver for values of admission policies.
const MaxAnnotation = 10 << 10

// The number and the bytes of the annotations of a request are bounded: they may come from outside.
const (
	maxAnnotations  = 128
	annotationBytes = 256 << 10
)

// ResetAnnotations drops the annotations of an earlier round.
func (c *Call) ResetAnnotations() { c.annotations = nil }

// AuditRecord returns what the event of the request has of its audit rule, with the timings of its stages; nil if the request
// has no rule. The caller must not change it.
func (c *Call) AuditRecord() *logpb.Audit {
	if c.Audit == nil {
		return nil
	}
	shared := c.Audit.Record
	if !c.Audit.Recorded() {
		return shared
	}
	timings, secret, scale := c.Timings.String(), c.recordedSecrets(), c.recordedScale()
	if timings == "" && secret == nil && scale == nil && c.annotations == nil {
		return shared
	}
	slices.SortFunc(c.annotations, func(a, b *logpb.Annotation) int { return strings.Compare(a.Key, b.Key) })
	return &logpb.Audit{
		Level: shared.Level, Stages: shared.Stages, Rule: shared.Rule, Source: shared.Source, OmitManagedFields: shared.OmitManagedFields, Timings: timings, SecretFields: secret, Scale: scale, Annotations: slices.Clip(c.annotations),
	}
}

// recordedSecrets returns the fields that are secret in the bodies that are recorded, in the version of the request and in the
// one that is stored; nil if there are none, or if no body is recorded.
func (c *Call) recordedSecrets() []string {
	if !c.RecordsBody() || c.Kind == nil || c.Kind.Program == nil || c.Kind.Kind == nil {
		return nil
	}
	fields := c.Kind.Program.SensitivePaths()
	if stored := c.Kind.Kind.Stored(); stored.StorageVersion != "" {
		fields = append(fields, stored.Storage().Program.SensitivePaths()...)
	}
	return slices.Compact(hashing.Fields(fields).Encode())
}

// recordedScale returns how the Scale is made that answers a write; nil if the body of the answer is not recorded, or is no Scale.
func (c *Call) recordedScale() *logpb.ScalePaths {
	if c.Audit.Level < logpb.AuditLevel_AUDIT_LEVEL_REQUEST_RESPONSE || !c.Write || !c.Scales() || c.Kind == nil || c.Kind.Scale == nil {
		return nil
	}
	s := c.Kind.Scale
	return &logpb.ScalePaths{SpecReplicas: s.SpecReplicasPath, StatusReplicas: s.StatusReplicasPath, LabelSelector: s.LabelSelectorPath}
}

// RecordsBody reports whether the audit rule of the request records its body.
func (c *Call) RecordsBody() bool { return c.Audit != nil && c.Audit.RecordsBodies() }
