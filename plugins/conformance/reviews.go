package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"stele.dev/stele/plugins/admissionpb"
	"stele.dev/stele/plugins/authorizerpb"
)

// reviewing is the service of admission plugins.
var reviewing = &service{
	calls: func(i *Instance) calls { return i.Admission },
	ask: func(ctx context.Context, i *Instance, q proto.Message) (proto.Message, error) {
		return i.review(ctx, q.(*admissionpb.ReviewRequest))
	},
	questions: func(s *Subject) (list []proto.Message) {
		for _, r := range s.AllReviews() {
			list = append(list, r)
		}
		return list
	},
	strange:       strangeReviews,
	large:         largeReviews,
	deterministic: func(*authorizerpb.DescribeResponse) bool { return true },
}

// review asks for a verdict. An answer that stele would not accept as a verdict is an error.
func (i *Instance) review(ctx context.Context, q *admissionpb.ReviewRequest) (*admissionpb.ReviewResponse, error) {
	answer, err := i.Admission.Review(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("the review of %s %s in the stage %s: %w", word(q.GetOperation().String()), q.GetResource().GetResource(), word(q.GetStage().String()), err)
	}
	changes := answer.GetChange() != nil
	switch v := answer.GetVerdict(); {
	case v != admissionpb.Verdict_VERDICT_ALLOWED && v != admissionpb.Verdict_VERDICT_REFUSED:
		return nil, fmt.Errorf("it answers %s, which is no verdict", v)
	case changes && v == admissionpb.Verdict_VERDICT_REFUSED:
		return nil, errors.New("it changes an object that it refuses")
	case v == admissionpb.Verdict_VERDICT_REFUSED && answer.GetCode() != 0 && (answer.GetCode() < 400 || answer.GetCode() > 599):
		return nil, fmt.Errorf("it refuses with the code %d, which is none of an error", answer.GetCode())
	}
	return answer, nil
}

// word returns the name of a value of an enumeration: delete of OPERATION_DELETE.
func word(value string) string { return strings.ToLower(value[strings.LastIndexByte(value, '_')+1:]) }

func changesInMutationOnly(ctx context.Context, s *Subject) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		for _, q := range s.AllReviews() {
			answer, err := i.review(ctx, q)
			switch {
			case err != nil:
				return err
			case answer.GetChange() == nil:
			case q.GetStage() != admissionpb.Stage_STAGE_MUTATION:
				return fmt.Errorf("it changes {%v} in the stage validation, in which the object is final", q)
			case len(q.GetObject()) == 0:
				return fmt.Errorf("it changes {%v}, which is a delete", q)
			}
		}
		return nil
	})
}

func changesApply(ctx context.Context, s *Subject) error {
	return s.changed(ctx, func(_ *Instance, q *admissionpb.ReviewRequest, object []byte) error {
		return SameIdentity(q.GetObject(), object)
	})
}

func changesOnce(ctx context.Context, s *Subject) error {
	return s.changed(ctx, func(i *Instance, q *admissionpb.ReviewRequest, object []byte) error {
		again := proto.CloneOf(q)
		again.Object = object
		answer, err := i.review(ctx, again)
		if err != nil {
			return err
		}
		if answer.GetVerdict() == admissionpb.Verdict_VERDICT_REFUSED {
			return fmt.Errorf("it refuses what it made itself: %s", answer.GetMessage())
		}
		twice, err := Changed(object, answer)
		if err != nil {
			return err
		}
		if !equalJSON(object, twice) {
			return fmt.Errorf("it made %s, and of that %s: it may be asked again after others changed the object", object, twice)
		}
		return nil
	})
}

// changed calls check with each review whose object the plugin changes, and the changed object.
func (s *Subject) changed(ctx context.Context, check func(i *Instance, q *admissionpb.ReviewRequest, object []byte) error) error {
	return s.configured(ctx, func(ctx context.Context, i *Instance) error {
		for _, q := range s.AllReviews() {
			answer, err := i.review(ctx, q)
			if err != nil {
				return err
			}
			if answer.GetChange() == nil || len(q.GetObject()) == 0 {
				continue
			}
			object, err := Changed(q.GetObject(), answer)
			if err == nil {
				err = check(i, q, object)
			}
			if err != nil {
				return fmt.Errorf("{%v}: %w", q, err)
			}
		}
		return nil
	})
}

// Changed returns the object after the change in an answer.
func Changed(object []byte, answer *admissionpb.ReviewResponse) ([]byte, error) {
	switch change := answer.GetChange().(type) {
	case *admissionpb.ReviewResponse_Object:
		return change.Object, nil
	case *admissionpb.ReviewResponse_Patch:
		p, err := jsonpatch.DecodePatch(change.Patch)
		if err != nil {
			return nil, fmt.Errorf("its change is no JSON Patch: %w", err)
		}
		changed, err := p.Apply(object)
		if err != nil {
			return nil, fmt.Errorf("its patch %s does not apply: %w", change.Patch, err)
		}
		return changed, nil
	}
	return object, nil
}

// identity has the fields that no change may touch.
type identity struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name, Namespace, UID, ResourceVersion string
	} `json:"metadata"`
}

// SameIdentity returns an error if an object has become another one by a change, or none.
func SameIdentity(object, changed []byte) error {
	var was, is identity
	if err := json.Unmarshal(object, &was); err != nil {
		return err
	}
	if err := json.Unmarshal(changed, &is); err != nil {
		return fmt.Errorf("what it makes is no object: %w", err)
	}
	if was != is {
		return fmt.Errorf("it makes of %+v another object, %+v", was, is)
	}
	return nil
}

func equalJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func strangeReviews() []proto.Message {
	return []proto.Message{
		&admissionpb.ReviewRequest{},
		&admissionpb.ReviewRequest{Stage: 17, Operation: 17, Object: []byte("{"), OldObject: []byte("null"), Options: []byte("[")},
		&admissionpb.ReviewRequest{Stage: admissionpb.Stage_STAGE_MUTATION, Operation: admissionpb.Operation_OPERATION_UPDATE, Object: []byte("null"), NamespaceLabels: map[string]string{"": ""}},
		&admissionpb.ReviewRequest{Stage: admissionpb.Stage_STAGE_MUTATION, Operation: admissionpb.Operation_OPERATION_CREATE, Object: []byte(`{"metadata": null, "spec": 7}`)},
		&admissionpb.ReviewRequest{
			Stage: admissionpb.Stage_STAGE_VALIDATION, Operation: admissionpb.Operation_OPERATION_CREATE, Object: []byte(`[]`),
			User: &authorizerpb.User{Extra: map[string]*authorizerpb.Values{"": nil}}, Time: &timestamppb.Timestamp{Seconds: -1 << 62, Nanos: -1},
		},
	}
}

func largeReviews() []proto.Message {
	deep, long := unknown(admissionpb.Stage_STAGE_MUTATION, admissionpb.Operation_OPERATION_CREATE), unknown(admissionpb.Stage_STAGE_VALIDATION, admissionpb.Operation_OPERATION_UPDATE)
	long.Object = bytes.Replace(long.Object, []byte("small"), bytes.Repeat([]byte("x"), large), 1)
	var list strings.Builder
	for n := range large / 32 {
		fmt.Fprintf(&list, `,{"n":"%022d"}`, n)
	}
	deep.Object = bytes.Replace(deep.Object, []byte(`"small"`), []byte("["+list.String()[1:]+"]"), 1)
	return []proto.Message{deep, long}
}

// AllReviews returns the reviews of the subject, and some of objects that it probably does not know.
func (s *Subject) AllReviews() []*admissionpb.ReviewRequest {
	reviews := slices.Clone(s.Reviews)
	for _, stage := range []admissionpb.Stage{admissionpb.Stage_STAGE_MUTATION, admissionpb.Stage_STAGE_VALIDATION} {
		for operation := admissionpb.Operation_OPERATION_CREATE; operation <= admissionpb.Operation_OPERATION_DELETE; operation++ {
			reviews = append(reviews, unknown(stage, operation))
		}
	}
	return reviews
}

// unknown returns a review of an object that no plugin knows.
func unknown(stage admissionpb.Stage, operation admissionpb.Operation) *admissionpb.ReviewRequest {
	const thing = `{"apiVersion":"conformance.stele.dev/v1","kind":"Thing","metadata":{"name":"thing","namespace":"nowhere","uid":"6f1c2b0e"},"spec":{"text":"small"}}`
	kind := &admissionpb.Kind{Group: "conformance.stele.dev", Version: "v1", Kind: "Thing"}
	resource := &admissionpb.Resource{Group: kind.Group, Version: kind.Version, Resource: "things"}
	q := &admissionpb.ReviewRequest{
		Uid: "6f1c2b0e", Rule: "conformance/plugins/unknown", Stage: stage, Operation: operation,
		Kind: kind, Resource: resource, RequestKind: kind, RequestResource: resource, Namespace: "nowhere", Name: "thing",
		User: &authorizerpb.User{Name: "nobody", Groups: []string{"system:authenticated"}}, Time: timestamppb.New(now),
	}
	if operation != admissionpb.Operation_OPERATION_DELETE {
		q.Object = []byte(thing)
	}
	if operation != admissionpb.Operation_OPERATION_CREATE {
		q.OldObject = []byte(thing)
	}
	return q
}
