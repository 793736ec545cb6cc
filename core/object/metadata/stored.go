package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"stele.dev/stele/schemas/jsonvalue"
)

// DecodeStored decodes the canonical JSON of an object. It keeps the text of managedFields, because decoding and
// encoding would reorder them.
func DecodeStored(text []byte) (*metav1.ObjectMeta, map[string]any, error) {
	from, to, list := managedFields(text)
	entries, err := entries(list)
	if err != nil {
		return nil, nil, err
	}
	content, err := jsonvalue.UnmarshalObject(text[:from], text[to:])
	if err != nil {
		return nil, nil, err
	}
	if content == nil {
		return nil, nil, errors.New("the object is null")
	}
	meta, _, err := Decode(content)
	if err != nil {
		return nil, nil, err
	}
	meta.ManagedFields = entries
	return meta, content, nil
}

// Split removes the managedFields from an object's JSON, and returns both. list is "" if the JSON has none, or is not
// canonical.
func Split(text []byte) (rest []byte, list string) {
	from, to, list := managedFields(text)
	if list == "" {
		return text, ""
	}
	return slices.Concat(text[:from], text[to:]), list
}

// managedFields returns the list of an object's managedFields, and the part of its JSON without which it has none. All are empty if
// Split returns no list.
func managedFields(text []byte) (from, to int, list string) {
	found := gjson.GetBytes(text, "metadata.managedFields")
	if !found.Exists() || found.Index == 0 {
		return 0, 0, ""
	}
	const key = `"managedFields":`
	from, to = found.Index-len(key), found.Index+len(found.Raw)
	if from < 1 || !bytes.HasPrefix(text[from:], []byte(key)) {
		return 0, 0, ""
	}
	switch {
	case text[from-1] == ',':
		from--
	case text[from-1] != '{':
		return 0, 0, ""
	case to < len(text) && text[to] == ',':
		to++
	}
	return from, to, found.Raw
}

// Labels returns the labels of an object in canonical JSON.
func Labels(text []byte) labels.Set {
	set := labels.Set{}
	gjson.GetBytes(text, "metadata.labels").ForEach(func(key, value gjson.Result) bool {
		set[key.String()] = value.String()
		return true
	})
	return set
}

func entries(list string) ([]metav1.ManagedFieldsEntry, error) {
	var all []metav1.ManagedFieldsEntry
	var err error
	gjson.Parse(list).ForEach(func(_, entry gjson.Result) bool {
		var e metav1.ManagedFieldsEntry
		entry.ForEach(func(key, value gjson.Result) bool {
			switch key.Str {
			case "manager":
				e.Manager = value.String()
			case "operation":
				e.Operation = metav1.ManagedFieldsOperationType(value.String())
			case "apiVersion":
				e.APIVersion = value.String()
			case "time":
				var at time.Time
				if at, err = time.Parse(time.RFC3339, value.String()); err == nil {
					e.Time = &metav1.Time{Time: at.UTC()}
				}
			case "fieldsType":
				e.FieldsType = value.String()
			case "fieldsV1":
				e.FieldsV1 = metav1.NewFieldsV1(value.Raw)
			case "subresource":
				e.Subresource = value.String()
			}
			return err == nil
		})
		all = append(all, e)
		return err == nil
	})
	if err != nil {
		return nil, fmt.Errorf("managedFields: %w", err)
	}
	return all, nil
}
