package schemas

import (
	"fmt"
	"math"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Scale holds the paths to the fields that the scale subresource shows. A path consists of field
// names, each after a dot.
type Scale struct {
	SpecReplicasPath   string `json:"specReplicasPath"`
	StatusReplicasPath string `json:"statusReplicasPath"`
	LabelSelectorPath  string `json:"labelSelectorPath,omitempty"` // empty: no selector
}

// Replicas are the values that the scale subresource shows of an object.
type Replicas struct {
	Spec, Status int64
	HasSpec      bool // the object has a value for Spec
	Selector     string
}

// Of returns the replicas of an object. It fails if a field has the wrong type.
func (s *Scale) Of(object map[string]any) (r Replicas, err error) {
	if r.Spec, r.HasSpec, err = nested[int64](object, s.SpecReplicasPath); err != nil {
		return r, err
	}
	if r.Status, _, err = nested[int64](object, s.StatusReplicasPath); err != nil {
		return r, err
	}
	if s.LabelSelectorPath != "" {
		r.Selector, _, err = nested[string](object, s.LabelSelectorPath)
	}
	return r, err
}

// Scaled returns the Scale of an object, and reports whether the object has a value for its replicas. It fails if a field has the wrong type.
func (s *Scale) Scaled(meta *metav1.ObjectMeta, object map[string]any) (*autoscalingv1.Scale, bool, error) {
	n, err := s.Of(object)
	if err != nil {
		return nil, false, err
	}
	return &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{APIVersion: autoscalingv1.SchemeGroupVersion.String(), Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{
			Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion, CreationTimestamp: meta.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(n.Spec)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(n.Status), Selector: n.Selector},
	}, n.HasSpec, nil
}

// Set sets the replicas in the spec of an object. It fails if a parent of the field is not a struct.
func (s *Scale) Set(object map[string]any, replicas int64) error {
	return unstructured.SetNestedField(object, replicas, fields(s.SpecReplicasPath)...)
}

// Pointer returns the JSON pointer to the replicas in the spec of an object.
func (s *Scale) Pointer() string { return "/" + strings.Join(fields(s.SpecReplicasPath), "/") }

// Validate checks the fields that the scale subresource shows, as apiextensions-apiserver does on every
// write. A write to the status checks only the fields of the status. A nil Scale has no errors.
func (s *Scale) Validate(object map[string]any, onlyStatus bool) (errs field.ErrorList) {
	if s == nil {
		return nil
	}
	count := func(path string) {
		switch n, _, err := nested[int64](object, path); {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath(path), n, err.Error()))
		case n < 0:
			errs = append(errs, field.Invalid(field.NewPath(path), n, "should be a non-negative integer"))
		case n > math.MaxInt32:
			errs = append(errs, field.Invalid(field.NewPath(path), n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)))
		}
	}
	if !onlyStatus {
		count(s.SpecReplicasPath)
	}
	count(s.StatusReplicasPath)
	if s.LabelSelectorPath != "" {
		if text, _, err := nested[string](object, s.LabelSelectorPath); err != nil {
			errs = append(errs, field.Invalid(field.NewPath(s.LabelSelectorPath), text, err.Error()))
		}
	}
	return errs
}

// nested returns the value at a path of an object, and whether there is one. Its error, unlike that of package unstructured, does not quote
// what is at the path or at a parent of it, which may be a secret.
func nested[T any](object map[string]any, path string) (value T, found bool, err error) {
	var at any = object
	names := fields(path)
	for i, name := range names {
		parent, is := at.(map[string]any)
		if !is {
			return value, false, fmt.Errorf(".%s accessor error: .%s is of the type %T, expected map[string]interface{}", strings.Join(names, "."), strings.Join(names[:i], "."), at)
		}
		if at, found = parent[name]; !found || at == nil && i < len(names)-1 {
			return value, false, nil
		}
	}
	value, is := at.(T)
	if !is {
		return value, false, fmt.Errorf(".%s accessor error: it is of the type %T, expected %T", strings.Join(names, "."), at, value)
	}
	return value, true, nil
}

func fields(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
