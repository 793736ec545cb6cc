package read

import (
	"context"
	"errors"
	"time"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/table"
	"stele.dev/stele/core/past"
	"stele.dev/stele/core/status"
	"stele.dev/stele/projections/objects"
)

// See pins the tip that answers a read: a confirmed one without a resourceVersion, any one for "0", else one that is
// not older than the resourceVersion. It waits a moment for a revision that this replica has not read yet, because
// clients move between replicas. If the tip has another policy, the error sends the request back.
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
		tip, err = rd.fresh(ctx, tip)
	default:
		var revision uint64
		if revision, err = call.QueryRevision(resourceVersion); err != nil {
			return err
		}
		if revision > tip.Revision() {
			if tip, err = rd.confirmSoon(ctx); errors.Is(err, errNotSoon) {
				return past.NotYet(revision, c.Tip.Revision())
			} else if err == nil && revision > tip.Revision() {
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

// soon is how long a read waits for the log that does not have to be of its newest state. kube-apiserver's watch cache
// waits as long.
const soon = 3 * time.Second

var errNotSoon = errors.New("read: the log did not answer soon")

// confirmSoon confirms the tip. The error is errNotSoon if the log does not answer soon.
func (rd *Reader) confirmSoon(ctx context.Context) (*commit.Tip, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errNotSoon)
	defer cancel()
	return rd.Committer.Confirm(ctx)
}

// fresh returns a tip that was confirmed not too long ago, the given one if it was. If the log cannot be reached, the
// error is a Status that says so.
func (rd *Reader) fresh(ctx context.Context, tip *commit.Tip) (*commit.Tip, error) {
	if rd.Committer.Unconfirmed() <= commit.MaxUnconfirmed {
		return tip, nil
	}
	confirmed, err := rd.confirmSoon(ctx)
	if errors.Is(err, errNotSoon) {
		return nil, status.Unconfirmed(rd.Committer.Unconfirmed())
	}
	return confirmed, err
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
		var now *objects.State
		if now, err = rd.currentState(ctx, c); err == nil {
			o = now.Get(c.Resource(), c.Key.Namespace, c.Key.Name)
		}
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
	if f.As != negotiate.Metadata || c.Scales() { // metadata is the same in each version
		if object, err = c.View(object); err != nil {
			return err
		}
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
