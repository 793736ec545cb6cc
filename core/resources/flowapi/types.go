package flowapi

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

//go:generate go run stele.dev/stele/core/catalog/openapi/internal/swaggerdoc

// FlowObject is a flow of requests on the server that answers: the requests that match one flow schema and have the same
// distinguisher. It exists while the flow has requests or watches, and for ten minutes after its last refusal. It is not
// stored.
type FlowObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Status is what the flow does now.
	Status FlowStatus `json:"status"`
}

// FlowStatus is the state of a flow.
type FlowStatus struct {
	// FlowSchema is the name of the flow schema that the requests match.
	FlowSchema string `json:"flowSchema"`
	// DistinguisherMethod says what tells apart the flows of the flow schema: ByUser or ByNamespace. It is empty if all of its
	// requests are one flow.
	DistinguisherMethod string `json:"distinguisherMethod,omitempty"`
	// Distinguisher is the user or the namespace of the flow.
	Distinguisher string `json:"distinguisher,omitempty"`
	// PriorityLevel is the name of the priority level whose seats the requests take.
	PriorityLevel string `json:"priorityLevel"`
	// Exempt is true if the requests never wait and are never refused.
	Exempt bool `json:"exempt,omitempty"`
	// Source is the file and line of the flow schema in the bundle. It is empty for flow schemas that the bundle does not
	// define.
	Source string `json:"source,omitempty"`
	// Executing is the number of requests that run and hold seats.
	Executing int64 `json:"executing"`
	// Seats is the number of seats that they hold, also the final seats of requests that have ended.
	Seats int64 `json:"seats"`
	// Waiting is the number of requests in queues.
	Waiting int64 `json:"waiting"`
	// WaitingSeats is the number of seats for which they wait.
	WaitingSeats int64 `json:"waitingSeats,omitempty"`
	// LongestWait is how long the request that has waited longest waits by now, such as 1.5s.
	LongestWait string `json:"longestWait,omitempty"`
	// Watches is the number of open watches.
	Watches int64 `json:"watches"`
	// WatchLimit is how many watches the flow may have open, from the flow schema; 0 for no limit.
	WatchLimit int64 `json:"watchLimit,omitempty"`
	// Refused is the number of requests that were refused.
	Refused int64 `json:"refused"`
	// Refusals are these numbers by reason.
	Refusals []Refusal `json:"refusals,omitempty"`
	// RefusedSince is when the first of them was refused. Refusals are forgotten ten minutes after the last one.
	RefusedSince *metav1.Time `json:"refusedSince,omitempty"`
	// LastRefused is when the last of them was refused.
	LastRefused *metav1.Time `json:"lastRefused,omitempty"`
}

// Refusal counts refused requests.
type Refusal struct {
	// Reason says why they were refused: queue-full, concurrency-limit, time-out, cancelled or watch-limit.
	Reason string `json:"reason"`
	// Count is their number.
	Count int64 `json:"count"`
}

// PriorityLevelObject is a priority level on the server that answers, with its seats. It is not stored.
type PriorityLevelObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	// Status is what the priority level does now.
	Status PriorityLevelStatus `json:"status"`
}

// PriorityLevelStatus is the state of a priority level.
type PriorityLevelStatus struct {
	// Exempt is true if requests of the priority level never wait and are never refused.
	Exempt bool `json:"exempt,omitempty"`
	// Draining is true if the policy in force does not have the priority level any more. It goes when its last request has
	// ended.
	Draining bool `json:"draining,omitempty"`
	// Source is the file and line of the priority level in the bundle. It is empty for priority levels that the bundle does
	// not define.
	Source string `json:"source,omitempty"`
	// Shares are its shares of the server's seats.
	Shares int64 `json:"shares"`
	// NominalSeats is the number of seats that these shares are.
	NominalSeats int64 `json:"nominalSeats"`
	// LowerLimitSeats is the number of seats that it keeps when it lends as many as it may.
	LowerLimitSeats int64 `json:"lowerLimitSeats"`
	// UpperLimitSeats is the number of seats that it has when it borrows as many as it may.
	UpperLimitSeats int64 `json:"upperLimitSeats"`
	// CurrentSeats is the number of seats that it has now. It is adjusted every 10 seconds.
	CurrentSeats int64 `json:"currentSeats"`
	// Seats is the number of seats that are taken, also the final seats of requests that have ended.
	Seats int64 `json:"seats"`
	// Executing is the number of requests that run and hold seats.
	Executing int64 `json:"executing"`
	// Waiting is the number of requests in queues.
	Waiting int64 `json:"waiting"`
	// WaitingSeats is the number of seats for which they wait.
	WaitingSeats int64 `json:"waitingSeats,omitempty"`
	// LongestWait is how long the request that has waited longest waits by now, such as 1.5s.
	LongestWait string `json:"longestWait,omitempty"`
	// MaxSeatsPerRequest is the maximum number of seats that one request takes; 0 if there is none.
	MaxSeatsPerRequest int64 `json:"maxSeatsPerRequest,omitempty"`
	// Queues is the number of queues. Without queues, requests that find no seats are refused.
	Queues int64 `json:"queues,omitempty"`
	// HandSize is the number of queues of one flow.
	HandSize int64 `json:"handSize,omitempty"`
	// QueueLengthLimit is the maximum number of requests in a queue.
	QueueLengthLimit int64 `json:"queueLengthLimit,omitempty"`
	// Demand is the number of seats that requests wanted in the last adjustment period.
	Demand Demand `json:"demand"`
	// Dispatched is the number of requests that got seats since the server has started.
	Dispatched int64 `json:"dispatched"`
	// Refused is the number of requests that were refused since the server has started.
	Refused int64 `json:"refused"`
	// Refusals are these numbers by reason.
	Refusals []Refusal `json:"refusals,omitempty"`
	// RetryAfterSeconds is the value of the header Retry-After of refusals now.
	RetryAfterSeconds int64 `json:"retryAfterSeconds,omitempty"`
}

// Demand is the demand for seats of a priority level: the seats that are taken and those that are waited for.
type Demand struct {
	// HighWatermark is the maximum.
	HighWatermark int64 `json:"highWatermark"`
	// Average is the average, weighted by time.
	Average float64 `json:"average"`
	// StandardDeviation is the standard deviation, weighted by time.
	StandardDeviation float64 `json:"standardDeviation"`
	// Smoothed is the sum of average and standard deviation. It rises at once, and falls by half in five minutes.
	Smoothed float64 `json:"smoothed"`
}
