package webhooks

// CheckAnswer is checkAnswer.
var CheckAnswer = checkAnswer
