package read

import (
	"context"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
	"stele.dev/stele/core/table"
	"stele.dev/stele/projections/objects"
)

// See pins the tip that answers a read: a confirmed one without a resourceVersion, any one for "0", else one that is
// not older than the resourceVersion. If the tip has another policy, the error sends the request back.
func (rd *Reader) See(ctx context.Context, c *call.Call, resourceVersion string) error {
	if c.Past.Tip != nil {
		return rd.seePast(ctx, c, resourceVersion)
	}
	tip := c.Tip
	var err error
	switch resourceVersion {
	case "":
		if !c.Confirmed {
			tip, err = rd.Committer.Confirm(ctx)
		}
	case "0":
		if rd.Committer.Unconfirmed() > commit.MaxUnconfirmed {
			tip, err = rd.Committer.Confirm(ctx)
		}
	default:
		var revision uint64
		if revision, err = call.QueryRevision(resourceVersion); err != nil {
			return err
		}
		if revision > tip.Revision() {
			if tip, err = rd.Committer.Confirm(ctx); err == nil && revision > tip.Revision() {
				return past.NotYet(revision, tip.Revision())
			}
		}
		if err == nil {
			err = rd.checkLost(ctx, tip, revision)
		}
	}
	if err != nil {
		return err
	}
	return c.Pin(tip)
}

// GetVersion returns the resourceVersion that a get asks for, and whether it asks for exactly that one, which
// kube-apiserver supports for lists only.
func GetVersion(c *call.Call) (version string, exact bool, err error) {
	if c.HTTP.URL.RawQuery == "" {
		return "", false, nil
	}
	query := c.HTTP.URL.Query()
	export, asked := false, query["export"]
	if err := runtime.Convert_Slice_string_To_bool(&asked, &export, nil); err != nil {
		return "", false, status.BadRequestf("the export parameter cannot be parsed: %v", err)
	}
	if export {
		return "", false, status.BadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	o := internalversion.ListOptions{ResourceVersion: query.Get("resourceVersion"), ResourceVersionMatch: metav1.ResourceVersionMatch(query.Get("resourceVersionMatch"))}
	if errs := internalvalidation.ValidateListOptions(&o, true); len(errs) > 0 {
		return "", false, status.Invalid(schema.GroupKind{Group: metav1.GroupName, Kind: "GetOptions"}, "", errs)
	}
	return o.ResourceVersion, Exactly(&o), nil
}

// Get answers with one object.
func (rd *Reader) Get(ctx context.Context, c *call.Call) error {
	version, exact, err := GetVersion(c)
	if err != nil {
		return err
	}
	var o *objects.Object
	if exact || c.Past.Tip != nil {
		o, err = rd.objectAt(ctx, c, version, exact)
	} else if err = rd.See(ctx, c, version); err == nil {
		o = c.Tip.Objects.Get(c.Resource(), c.Key.Namespace, c.Key.Name)
	}
	if err != nil {
		return err
	}
	if c.Sent {
		return nil
	}
	if o == nil {
		return rd.notFound(ctx, c)
	}
	return rd.AnswerObject(c, 200, o.JSON)
}

// AnswerObject answers with an object, given as its stored JSON.
func (rd *Reader) AnswerObject(c *call.Call, code int, object []byte) error {
	f, err := c.Format()
	if err != nil {
		return err
	}
	if object, err = c.View(object); err != nil {
		return err
	}
	switch f.As {
	case negotiate.Table:
		o, err := call.TableOptions(c, f)
		if err != nil {
			return err
		}
		list := metav1.ListMeta{ResourceVersion: gjson.GetBytes(object, "metadata.resourceVersion").String()}
		if object, err = rd.Surface.Printer(c).Table(o, list, [][]byte{object}); err != nil {
			return err
		}
	case negotiate.Metadata:
		if f.List {
			return status.NotAcceptable("you requested PartialObjectMetadataList, but the requested object is not a list (%s)", c.GoType(""))
		}
		object = table.Metadata(object, f.AsVersion)
	}
	return c.WriteBody(f, code, object)
}
