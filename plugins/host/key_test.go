package host

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
	"stele.dev/stele/plugins/authorizerpb"
)

// filled sets every field of a message: lists and maps get two entries, a oneof gets the chosen field.
func filled(m protoreflect.Message, target protoreflect.Name) {
	text := protoreflect.ValueOfString
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.ContainingOneof() != nil && field.Name() != target:
		case field.IsMap():
			for _, key := range []string{"a", "b"} {
				v := m.NewField(field).Map().NewValue()
				filled(v.Message(), target)
				m.Mutable(field).Map().Set(text(key).MapKey(), v)
			}
		case field.IsList() && field.Kind() == protoreflect.MessageKind:
			for range 2 {
				filled(m.Mutable(field).List().AppendMutable().Message(), target)
			}
		case field.IsList():
			m.Mutable(field).List().Append(text("a"))
			m.Mutable(field).List().Append(text("b"))
		case field.Kind() == protoreflect.MessageKind:
			filled(m.Mutable(field).Message(), target)
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, text(string(field.Name())))
		}
	}
}

// variants makes every single change of a message, calls visit, and undoes the change.
func variants(m protoreflect.Message, path string, visit func(what string)) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		here := path + "." + string(field.Name())
		switch {
		case field.IsMap():
			v.Map().Range(func(key protoreflect.MapKey, x protoreflect.Value) bool {
				variants(x.Message(), here+"."+key.String(), visit)
				v.Map().Clear(key)
				visit(here + " without " + key.String())
				v.Map().Set(key, x)
				return true
			})
		case field.IsList():
			first := v.List().Get(0)
			if field.Kind() == protoreflect.MessageKind {
				variants(first.Message(), here, visit)
			} else {
				v.List().Set(0, protoreflect.ValueOfString("changed"))
				visit(here)
				v.List().Set(0, first)
			}
			second := v.List().Get(1)
			v.List().Truncate(1)
			visit(here + " shorter")
			v.List().Append(second)
		case field.Kind() == protoreflect.MessageKind:
			variants(v.Message(), here, visit)
		default:
			if field.Kind() != protoreflect.StringKind {
				visit(here + ": a kind of field that this test doesn't know")
				return true
			}
			m.Set(field, protoreflect.ValueOfString(v.String()+"x"))
			visit(here)
			m.Set(field, v)
		}
		return true
	})
}

// TestEveryFieldButTheTimeIsPartOfTheKey finds fields that a later version adds to the protocol, too.
func TestEveryFieldButTheTimeIsPartOfTheKey(t *testing.T) {
	changes := 0
	for _, target := range []protoreflect.Name{"resource", "path"} {
		for _, padding := range []string{"", strings.Repeat("x", 1<<20)} {
			q := &authorizerpb.AuthorizeRequest{}
			filled(q.ProtoReflect(), target)
			q.User.Uid += padding
			q.Time = nil
			k := keyOf(q)
			seen := map[key]string{k: "unchanged"}
			variants(q.ProtoReflect(), "", func(what string) {
				changes++
				if same, found := seen[keyOf(q)]; found {
					t.Errorf("%s %s: has the key of %s", target, what, same)
				}
				seen[keyOf(q)] = what
			})
			q.Time = timestamppb.Now()
			if keyOf(q) != k {
				t.Error("the time is part of the key")
			}
		}
	}
	if changes < 60 {
		t.Errorf("only %d changes", changes)
	}
}

func TestFieldsDoNotRunIntoEachOther(t *testing.T) {
	user := func(name, uid string, groups ...string) *authorizerpb.AuthorizeRequest {
		return &authorizerpb.AuthorizeRequest{User: &authorizerpb.User{Name: name, Uid: uid, Groups: groups}}
	}
	keys := []key{
		keyOf(user("ab", "c")), keyOf(user("a", "bc")), keyOf(user("", "abc")), keyOf(user("abc", "")),
		keyOf(user("", "", "a", "b")), keyOf(user("", "", "ab")), keyOf(user("", "", "b", "a")), keyOf(user("", "", "", "ab")),
		keyOf(&authorizerpb.AuthorizeRequest{Target: &authorizerpb.AuthorizeRequest_Path{}}),
		keyOf(&authorizerpb.AuthorizeRequest{Target: &authorizerpb.AuthorizeRequest_Resource{}}),
		keyOf(&authorizerpb.AuthorizeRequest{}),
	}
	different := map[key]bool{}
	for _, k := range keys {
		different[k] = true
	}
	if n := len(different); n != len(keys) {
		t.Errorf("%d keys of %d questions", n, len(keys))
	}
}

func TestTheKeyDoesNotDependOnTheOrderOfAMap(t *testing.T) {
	extra := map[string]*authorizerpb.Values{}
	for i := range 20 {
		extra[fmt.Sprint(i)] = &authorizerpb.Values{Values: []string{"x"}}
	}
	q := &authorizerpb.AuthorizeRequest{User: &authorizerpb.User{Extra: extra}}
	k := keyOf(q)
	for range 100 {
		if keyOf(q) != k {
			t.Fatal("it does")
		}
	}
}

func TestCache(t *testing.T) {
	now := time.Now()
	name := func(text string, i int) key { return sha256.Sum256(fmt.Append(nil, text, i)) }
	c, until := newCache[Answer](), now.Add(time.Minute)
	c.put(name("a", 0), Answer{Reason: "1"}, 1, until)
	if got, ok := c.get(name("a", 0), now); !ok || got != (Answer{Reason: "1"}) {
		t.Errorf("%+v %v", got, ok)
	}
	if _, ok := c.get(name("a", 0), until); ok {
		t.Error("it is kept for longer than it may")
	}
	most := cacheBytes / entryBytes
	for i := range 5 * most {
		c.put(name("new", i), Answer{}, 0, until)
		if _, ok := c.get(name("a", 0), now); !ok {
			t.Fatalf("an answer that is asked for all the time is dropped after %d others", i)
		}
		if n := c.answers.Len(); n > most {
			t.Fatalf("%d are kept", n)
		}
	}
	if _, ok := c.get(name("new", 0), now); ok {
		t.Error("nothing is dropped")
	}
	large := strings.Repeat("x", 1<<20)
	for i := range 100 {
		c.put(name("large", i), Answer{Reason: large}, len(large), until)
	}
	if bytes := c.answers.Len() << 20; bytes > cacheBytes {
		t.Errorf("%d bytes are kept", bytes)
	}
}
