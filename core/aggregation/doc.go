// Package aggregation passes requests for API groups on to the servers that answer them: the aggregated API servers of a
// policy, which Kubernetes describes by APIServices. It keeps a connection pool for each server, looks whether it is
// available, and keeps its discovery and OpenAPI documents.
//
// A request comes here after it was authenticated, limited and authorized. What the other server gets of it is what was
// decided: the user in X-Remote- headers, and the path that was authorized. Headers of the client that say something else
// are removed. The other server believes the headers because of the client certificate of this one, the front proxy.
//
// A server that does not answer costs its own callers a 503, and nobody else anything: its requests hold no seats while they
// wait for it, only so many wait at a time, and a circuit refuses them at once when several in a row were not answered.
// Documents are fetched in the background. Those of a server that is down stay, marked stale.
package aggregation
