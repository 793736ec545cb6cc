package call

import (
	"encoding/json"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/object/table"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// A form encodes virtual resources in the formats that clients negotiate.
type form struct {
	listKind, version string
	printer           func() *table.Printer
}

// NewForm returns the form of a resource with this list kind and version. Its tables have the columns.
func NewForm(listKind, version string, columns func() []schemas.Column) *form {
	return &form{listKind, version, sync.OnceValue(func() *table.Printer {
		return table.New(&policy.Version{Version: &schemas.Version{Columns: columns()}})
	})}
}

// As encodes objects in the negotiated format, as a list or as a single object.
func (x *form) As(c *Call, f negotiate.Format, meta metav1.ListMeta, texts [][]byte, list bool) ([]byte, error) {
	if f.As == negotiate.Table {
		o, err := TableOptions(c, f)
		if err != nil {
			return nil, err
		}
		return x.printer().Table(o, meta, texts)
	}
	kind, version := x.listKind, x.version
	if f.As == negotiate.Metadata {
		kind, version = "PartialObjectMetadataList", "meta.k8s.io/"+f.AsVersion
		for i, t := range texts {
			texts[i] = table.Metadata(t, f.AsVersion)
		}
	}
	if !list {
		return texts[0], nil
	}
	items := make([]json.RawMessage, len(texts))
	for i, t := range texts {
		items[i] = t
	}
	return json.Marshal(struct {
		Kind       string            `json:"kind"`
		APIVersion string            `json:"apiVersion"`
		Metadata   metav1.ListMeta   `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}{kind, version, meta, items})
}

// Answer writes objects as of the state that the call sees: as a list if it is one that the call asks for, else the only object.
func Answer[T any](c *Call, x *form, f negotiate.Format, code int, objects ...T) error {
	texts := make([][]byte, len(objects))
	for i, o := range objects {
		var err error
		if texts[i], err = json.Marshal(o); err != nil {
			return err
		}
	}
	body, err := x.As(c, f, metav1.ListMeta{ResourceVersion: fmt.Sprint(c.World().Revision())}, texts, c.Info.Verb == "list")
	if err != nil {
		return err
	}
	return c.WriteBody(f, code, body)
}
