package anthropic

// What a model is told in words because the wire has no field for it. All of it is
// read by the model, and said only when it was asked for.
const (
	hintBrief = "Answer briefly."
	hintLong  = "Answer at length and in detail."
	hintJSON  = "Answer with one JSON object and nothing else: no words around it, no code fence."

	// hintAnswer describes the tool that stands for a JSON schema.
	hintAnswer = "Give your final answer by calling this function. What it is called with is shown to the user as it is."

	// answerTool is that tool's name.
	answerTool = "final_answer"

	// hintSystem introduces a system message in the middle of a dialogue, where only
	// user and assistant speak.
	hintSystem = "[System message, not from the user]\n"

	// Vendors want a dialogue to begin and end with the user, and nobody to say nothing.
	hintBegin = "(The assistant speaks first.)"
	hintGoOn  = "Go on."
	hintEmpty = "(no words)"
)

// join puts two hints together.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}
