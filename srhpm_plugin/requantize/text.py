"""A text of several kinds over which two versions of a model are compared. Written for this."""

from __future__ import annotations

TEXT = '''\
The ferry to the northern islands leaves at six, before the bakery opens, so Ines had eaten
nothing when she carried her bicycle up the ramp. The sea lay flat and grey. Two fishermen argued
about the price of diesel, and a boy counted gulls aloud until his grandmother told him that gulls
do not like to be counted. When the lighthouse came into view, the engine coughed twice and went
quiet. Nobody moved. "It does that," said the man at the wheel, and he hit something below the
deck with a wrench, once, as one knocks at a neighbour's door. The engine began to run again, and
the boy started over at one.

She had come to repair a clock. It had stood in the hall of the school for ninety years and had
lost, in all that time, about four minutes, until a winter storm broke the window above it and
salt got into the movement. The letter from the headmaster was polite and a little desperate: the
children had begun to arrive whenever they liked. Ines packed brass wire, three kinds of oil, a
loupe and a jar of vinegar. Her father, who had taught her the trade, used to say that a clock
never stops for one reason; it stops for two, and you find the first one only to learn that there
is a second.

How does a refrigerator keep food cold? A liquid that boils at a low temperature is pumped through
a closed loop of pipes. Inside the box the pressure is low, so the liquid evaporates and takes
heat from the air around it. Outside, at the back, a compressor squeezes the vapour until it is
hot, and the warmth goes into the room through a grid of thin metal. The vapour becomes liquid
again, passes a narrow valve and begins anew. Nothing makes cold; heat is only carried from one
place to another, and the work of carrying it is paid for with electricity. That is why a kitchen
with an open refrigerator gets warmer, not cooler.

User: I have 240 eggs and boxes that hold 18 each. How many boxes do I fill, and how many eggs are
left?
Assistant: Divide 240 by 18. 18 times 13 is 234, so you fill 13 boxes, and 240 minus 234 leaves 6
eggs.
User: And if two eggs in every full box are cracked?
Assistant: Then 13 boxes hold 13 times 2, or 26 cracked eggs, and 234 minus 26, which is 208, are
whole. With the 6 eggs that are left over you have 214 good eggs, provided that none of those 6 is
cracked.
User: Thank you. What should I cook?
Assistant: With 26 cracked eggs that have to be used today, a large omelette with potatoes and
onions is a good choice. Wash the eggs first and throw away any whose shell is broken through.

```python
def merge(left, right):
    """Merge two sorted lists into one sorted list."""
    result = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            result.append(left[i])
            i += 1
        else:
            result.append(right[j])
            j += 1
    result.extend(left[i:])
    result.extend(right[j:])
    return result


def merge_sort(values):
    """Sort a list by splitting it in half, sorting both halves and merging them."""
    if len(values) < 2:
        return values
    middle = len(values) // 2
    return merge(merge_sort(values[:middle]), merge_sort(values[middle:]))


if __name__ == "__main__":
    print(merge_sort([5, 2, 9, 1, 5, 6]))
```

The function above looks at each element once on every level, and there are as many levels as the
length can be halved. For a thousand elements that makes about ten thousand steps, where comparing
every pair would need half a million. The price is memory: every merge builds a new list.

# Notes from the meeting on Tuesday

1. The new pump arrives on the 14th. Somebody has to be at the gate between eight and noon.
2. Water from the second well is cloudy after rain. Samples go to the laboratory every week until
it clears.
3. The budget for tools is spent. Marta asks the council for 1,200 more, mostly for hoses.
4. The path along the river stays closed. The bank has moved by half a metre since March.

Next meeting: Tuesday the 21st, at seven in the evening, in the room above the post office.

In 1783 two brothers who made paper let a balloon of linen and paper rise above a market square in
the south of France. It carried nobody. A few weeks later a sheep, a duck and a rooster flew over
the palace of the king and landed unharmed, apart from the rooster, which the sheep had kicked
before the start. By the end of the year people had flown, first on a rope and then freely, for
twenty-five minutes and about nine kilometres. What had lifted them was believed for some time to
be smoke; that it was only the heat of the air, and that the smell of burning straw had nothing to
do with it, was understood later.

Dear Mr. Okafor,

thank you for your letter of 3 May. We are sorry that the bookcase arrived with a broken shelf. A
new one has been sent to you today and should reach you within five working days. You need not
return the old one. If you prefer your money back, please tell us the number of the order, which
you find in the upper right corner of the bill, and we will refund the full price, delivery
included.

Yours sincerely,
Hanna Lindqvist
Customer service

To make the bread, mix 500 grams of flour with 350 grams of water, ten grams of salt and three
grams of dry yeast. Leave the dough alone for half an hour, then fold it over itself four times,
turning the bowl by a quarter each time. Repeat this three times, every half hour. Let it rise
over night in the refrigerator. In the morning heat the oven to 240 degrees with an iron pot
inside, put the dough into the hot pot, close the lid and bake it for thirty minutes; take the lid
off for the last fifteen. The bread is done when it sounds hollow.

{"name": "weather", "station": 17, "readings": [{"time": "06:00", "celsius": 4.5, "wind": "NW"},
{"time": "12:00", "celsius": 9.0, "wind": "W"}, {"time": "18:00", "celsius": 7.5, "wind": "W"}],
"valid": true}

A triangle has sides of 3, 4 and 5. Since 3 squared plus 4 squared is 9 plus 16, which is 25, and
5 squared is 25 as well, the angle between the shorter sides is a right angle. The area is half of
3 times 4, so it is 6. If all sides are doubled, the area becomes four times as large, 24, because
length and height both double.

The old man at the chess table never looked at his opponents. He looked at their hands. A hand
that hovers, he told me, has already decided and is afraid; a hand that lies still is waiting for
you to make the mistake it has prepared. I asked him what his own hands said. He held them up,
crooked as roots, and laughed. "Mine," he said, "say that it is cold, and that you have not moved
for ten minutes."
'''
