package restore

import (
	"encoding/json"
	"fmt"

	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/object/difference"
)

// View is an item as part of a document.
type View struct {
	Action      Action             `json:"action"`
	Group       string             `json:"group,omitempty"`
	Version     string             `json:"version"`
	Kind        string             `json:"kind"`
	Resource    string             `json:"resource"`
	Namespace   string             `json:"namespace,omitempty"`
	Name        string             `json:"name"`
	Differences []difference.Entry `json:"differences,omitempty"`
	Notes       []string           `json:"notes,omitempty"`
	Missing     []string           `json:"missing,omitempty"`
	Refused     string             `json:"refused,omitempty"`
	Revisions   []string           `json:"revisions,omitempty"`
	Failed      string             `json:"failed,omitempty"`
}

// View returns the item without secret values.
func (i *Item) View() View {
	v := View{
		Action: i.Action, Group: i.Kind.Group, Version: i.Kind.Version, Kind: i.Kind.Kind, Resource: i.Kind.Resource,
		Namespace: i.Namespace, Name: i.Name, Notes: i.Notes, Missing: i.Missing, Refused: i.Refused, Revisions: i.Revisions, Failed: i.Failed,
	}
	if i.Action == Update {
		v.Differences = i.hidden().Differences(i.Differences)
	}
	return v
}

// hidden returns the secret fields of the object.
func (i *Item) hidden() secrets.Fields { return i.Secrets.Union(secrets.Of(i.Kind.GroupKind(), nil)) }

// show returns the value of a field on a line, without secret values.
func (i *Item) show(path string, value any) string {
	return Show(i.hidden().Value(path, value))
}

// Show returns a value on a line, as JSON.
func Show(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(b)
}
