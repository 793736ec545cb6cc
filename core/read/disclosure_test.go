package read_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"stele.dev/stele/core/read"
	"stele.dev/stele/eventlog/logpb"
)

// filled sets each field of a message, and returns the paths of those that are no messages.
func filled(m protoreflect.Message, path string, oneof protoreflect.Name, depth int) (paths []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		at := strings.TrimPrefix(path+"."+string(f.Name()), ".")
		if f.ContainingOneof() != nil && f.Name() != oneof || depth > 5 {
			continue
		}
		switch {
		case f.IsList() && f.Message() != nil:
			paths = append(paths, filled(m.Mutable(f).List().AppendMutable().Message(), at, oneof, depth+1)...)
		case f.Message() != nil:
			paths = append(paths, filled(m.Mutable(f).Message(), at, oneof, depth+1)...)
		default:
			v := value(f, at)
			if f.IsList() {
				m.Mutable(f).List().Append(v)
			} else {
				m.Set(f, v)
			}
			paths = append(paths, at)
		}
	}
	return paths
}

func value(f protoreflect.FieldDescriptor, at string) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(at)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(at))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	}
	return protoreflect.ValueOfUint64(7)
}

// shown returns the paths of the fields that are set.
func shown(m protoreflect.Message, path string) (paths []string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := strings.TrimPrefix(path+"."+string(f.Name()), ".")
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				paths = append(paths, shown(v.List().Get(i).Message(), at)...)
			}
		case f.Message() != nil:
			paths = append(paths, shown(v.Message(), at)...)
		default:
			paths = append(paths, at)
		}
		return true
	})
	return paths
}

// A user who may not read an object sees only the listed fields of a record about it. A field that the format gets later is hidden until it is
// listed.
func TestWhatRecordsHide(t *testing.T) {
	of := func(prefix string) []string {
		return []string{prefix + ".message", prefix + ".details"}
	}
	hidden := []string{
		"skippable",
		"decisions.admission.message", "decisions.warnings", "decisions.mutations.paths", "decisions.audit.annotations.key", "decisions.audit.annotations.value",
		"decisions.audit.secret_fields", "decisions.audit.scale.spec_replicas", "decisions.audit.scale.status_replicas", "decisions.audit.scale.label_selector",
		"decisions.reads.group", "decisions.reads.resource", "decisions.reads.selection", "decisions.reads.found", "decisions.read_revision",
	}
	for detail, more := range map[protoreflect.Name][]string{
		"decision": of("decision"), "decisions_counted": of("decisions_counted.like"), "bulk": nil,
		"decisions_lost": {"decisions_lost.from_unix_nano", "decisions_lost.to_unix_nano", "decisions_lost.count", "decisions_lost.why"},
	} {
		m := &logpb.Metadata{}
		all := filled(m.ProtoReflect(), "", detail, 0)
		is := read.Disclosed(m)
		var missing []string
		for _, path := range all {
			if !slices.Contains(shown(is.ProtoReflect(), ""), path) {
				missing = append(missing, path)
			}
		}
		want := append(slices.Clone(hidden), more...)
		slices.Sort(want)
		slices.Sort(missing)
		if fmt.Sprint(missing) != fmt.Sprint(want) {
			t.Errorf("%s: hidden are\n%s\nwant\n%s", detail, strings.Join(missing, "\n"), strings.Join(want, "\n"))
		}
		if !read.Hides(m, is) {
			t.Errorf("%s: nothing is hidden", detail)
		}
		if again := read.Disclosed(is); read.Hides(is, again) || !proto.Equal(is, again) {
			t.Errorf("%s: what is shown hides something", detail)
		}
	}
}

// What the stages before an object is read say is shown to all readers of records; what others say may quote the object.
func TestWhichStagesQuoteObjects(t *testing.T) {
	for stage, want := range map[string]bool{
		"connection": false, "authentication": false, "impersonation": false, "flow": false, "authorization": false,
		"decode": true, "mutation": true, "schema": true, "conditions": true, "validation": true, "commit": true, "answer": true, "one that comes later": true,
	} {
		m := &logpb.Metadata{Detail: &logpb.Metadata_Decision{Decision: &logpb.Decision{Stage: stage, Message: "quoted"}}}
		if got := read.Disclosed(m).GetDecision().GetMessage() == ""; got != want {
			t.Errorf("%s: hidden is %v", stage, got)
		}
	}
}
